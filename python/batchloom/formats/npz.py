"""Archives of NumPy (`.npz`): a column for each array; arrays that are not compressed are mapped.

Promises:

- An array that `numpy.savez` wrote is mapped at its place in the archive, where its bytes are checked by no sum. Where
  elements do not lie at multiples of their size, as the directory of an archive leaves them, the engine copies it once.
- Arrays of `numpy.savez_compressed` are decompressed once, into memory, and only those that are chosen.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import DataError, DTypeError
from batchloom.formats.arrays import open_arrays
from batchloom.formats.mapped import map_bytes
from batchloom.formats.options import OpenOptions

# The arrays of a matrix that scipy.sparse has saved.
SPARSE = {"format", "shape", "data"}

# The fixed part of a local header of an archive, and where it has the lengths of the parts that differ.
LOCAL_HEADER, LENGTHS = 30, slice(26, 30)


class Archive(Mapping[str, Any]):
    """The arrays of one archive, each mapped or read when it is first asked for.

    Args:
        path: The file.

    Raises:
        DataError: It is no archive, or holds no array.
    """

    def __init__(self, path: str) -> None:
        self._path, self._arrays = path, dict[str, Any]()
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except Exception as error:  # whatever a damaged directory makes of the module
            raise DataError(f"{path} cannot be read: {error}; expected a whole file of numpy.savez") from error
        self._members = {each.filename.removesuffix(".npy"): each for each in members if not each.is_dir()}
        if self._members.keys() >= SPARSE:
            raise DataError(
                f"{path} holds a matrix of scipy.sparse; expected arrays: bl.TensorDataset takes the matrix of "
                "scipy.sparse.load_npz"
            )
        if not self._members:
            raise DataError(f"{path} holds no array; expected at least one")

    def __getitem__(self, name: str) -> Any:
        """Return one array.

        Raises:
            DataError: It is damaged, or leaves the file.
            DTypeError: It holds objects of Python.
        """
        if name not in self._arrays:
            member = self._members[name]
            try:
                self._arrays[name] = self._open(member)
            except (DataError, DTypeError):
                raise
            except Exception as error:  # whatever a damaged archive makes of its readers
                if "Object arrays" in str(error):
                    raise DTypeError(
                        f"array {name!r} of {self._path} holds objects of Python; expected numbers"
                    ) from None
                raise DataError(
                    f"array {name!r} of {self._path} cannot be read: {error}; expected a whole file"
                ) from error
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def _open(self, member: zipfile.ZipInfo) -> Any:
        if member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size:
            with open(self._path, "rb") as file:
                found = self._locate(file, member)
            if found is not None:
                return found
        with zipfile.ZipFile(self._path) as archive, archive.open(member) as file:
            return numpy.lib.format.read_array(file, allow_pickle=False)

    def _locate(self, file: BinaryIO, member: zipfile.ZipInfo) -> Any:
        """Return the array of a member that is stored as it is, mapped; ``None`` for headers of other versions."""
        file.seek(member.header_offset)
        local = file.read(LOCAL_HEADER)
        if local[:4] != b"PK\x03\x04" or len(local) < LOCAL_HEADER:
            raise DataError(f"{self._path} has no member at {member.header_offset}; expected a whole file")
        lengths = local[LENGTHS]
        start = file.seek(int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little"), 1)
        version = numpy.lib.format.read_magic(file)
        readers = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}
        if version not in readers:
            return None
        shape, is_fortran, dtype = readers[version](file)
        if dtype.hasobject:
            raise DTypeError(
                f"array {member.filename.removesuffix('.npy')!r} of {self._path} holds objects of Python; expected "
                "numbers or texts"
            )
        place = file.tell()
        return map_bytes(
            self._path, place, start + member.file_size, dtype, shape, member.filename, is_fortran=is_fortran
        )


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of archives, with a field for each array."""
    return open_arrays(files, [Archive(file) for file in files], options)
