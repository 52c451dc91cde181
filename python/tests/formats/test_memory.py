"""`memory=` of files that are mapped: the same batches, and pages that return."""

import batchloom as bl
import numpy
import pytest
from batchloom.dataset.base import samples_of
from oracles.memory import resident_of
from refusals import refused

pyarrow = pytest.importorskip("pyarrow")

X = numpy.arange(240_000, dtype=numpy.float32).reshape(3000, 80)
ENDS = numpy.arange(0, 240_001, 80)


def write_npy(folder):
    numpy.save(folder / "a.npy", X)
    return folder / "a.npy", {}


def write_fields(folder):
    numpy.save(folder / "a.npy", X)
    return {"x": folder / "a.npy"}, {}


def write_npz(folder):
    numpy.savez(folder / "a.npz", x=X.astype(numpy.int8))  # which lie anywhere, and are mapped
    return folder / "a.npz", {}


def write_safetensors(folder):
    header = b'{"x":{"dtype":"F32","shape":[3000,80],"data_offsets":[0,960000]}}'
    header += b" " * (-len(header) % 8)
    (folder / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + X.tobytes())
    return folder / "a.safetensors", {}


def write_arrow(folder):
    values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.reshape(-1)), 80)
    table = pyarrow.table({"x": values, "text": [str(row) for row in range(3000)]})
    with pyarrow.OSFile(str(folder / "a.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    return folder / "a.arrow", {}


def write_lists(folder):
    table = pyarrow.table({"x": pyarrow.ListArray.from_arrays(ENDS.astype(numpy.int32), pyarrow.array(X.reshape(-1)))})
    with pyarrow.OSFile(str(folder / "a.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    return folder / "a.arrow", {}


def write_tokens(folder):
    numpy.arange(240_000, dtype=numpy.uint32).tofile(folder / "a.bin")
    return folder / "a.bin", {"dtype": "uint32", "seq_len": 80}


def write_windows(folder):
    numpy.save(folder / "a.npy", X)
    return folder / "a.npy", {"kind": "windows", "input_len": 20, "horizon": 4}


def write_folder(folder):
    pytest.importorskip("datasets").Dataset.from_dict({"x": X.tolist()}).save_to_disk(folder / "saved")
    return folder / "saved", {}


def write_megatron(folder):
    tokens = numpy.arange(240_000, dtype=numpy.uint16)
    lengths, places = numpy.full(3000, 80, numpy.int32), numpy.arange(0, 480_000, 160)
    parts = (lengths, places.astype(numpy.int64), numpy.arange(3001, dtype=numpy.int64))
    counts = (3000).to_bytes(8, "little") + (3001).to_bytes(8, "little")
    header = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + b"\x08" + counts
    (folder / "a.idx").write_bytes(header + b"".join(part.tobytes() for part in parts))
    (folder / "a.bin").write_bytes(tokens.tobytes())
    return folder / "a.bin", {}


WRITERS = [each for name, each in list(globals().items()) if name.startswith("write_")]


@pytest.mark.law("L2")
@pytest.mark.parametrize("write", WRITERS)
def test_a_limit_changes_no_batch(tmp_path, write):
    source, options = write(tmp_path)
    limited = bl.open(source, memory=1, **options)
    assert (limited.memory, bl.open(source, **options).memory) == (1, None)
    for shuffle in (True, False):
        pair = zip(
            *(bl.DataLoader(each, 64, shuffle=shuffle) for each in (limited, bl.open(source, **options))), strict=True
        )
        for found, wanted in pair:
            assert type(found) is type(wanted)
            for name in wanted if isinstance(wanted, dict) else range(len(wanted)):
                assert numpy.array_equal(found[name], wanted[name])


@pytest.mark.parametrize(
    "write", [write_npy, write_safetensors, write_arrow, write_lists, write_tokens, write_megatron]
)
def test_pages_of_files_return(tmp_path, write):
    source, options = write(tmp_path)
    limited = bl.open(source, memory=1, **options)
    samples = samples_of(limited)
    for _ in range(3):
        for sample in limited:
            str(sample)
        assert resident_of(str(source)) > 100_000
        samples.release_pages()
        assert resident_of(str(source)) == 0


def test_an_object_of_datasets_is_unmapped_too(tmp_path):
    """Its files are mapped by pyarrow."""
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"x": X.tolist()}).save_to_disk(tmp_path / "saved")
    kept = datasets.load_from_disk(tmp_path / "saved")
    limited, wanted = bl.open(kept, memory=1), bl.open(kept)
    for found, expected in zip(
        bl.DataLoader(limited, 64, shuffle=True), bl.DataLoader(wanted, 64, shuffle=True), strict=True
    ):
        assert all(numpy.array_equal(found[name], expected[name]) for name in expected)
    with refused(bl.ArgumentError, "memory", "map of a file"):
        bl.open(datasets.Dataset.from_dict({"x": [[1], [2]]}), memory="1MB")


def test_what_is_read_whole_has_no_limit(tmp_path):
    numpy.savez_compressed(tmp_path / "a.npz", x=X)
    with refused(bl.ArgumentError, "memory", "'1MB'", "map of a file"):
        bl.open(tmp_path / "a.npz", memory="1MB")
    (tmp_path / "lines.txt").write_text("a\nb\n")
    with refused(bl.ArgumentError, "memory", "lines of text"):
        bl.open(tmp_path / "lines.txt", memory="1MB")
