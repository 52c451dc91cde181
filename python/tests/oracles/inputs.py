"""One array as each kind of object that stands for an array, and the datasets of each argument that takes one."""

import itertools

import batchloom as bl
import numpy
import pytest

# Numbers of files of HDF5 in memory, none of which may have the name of another one.
FILES = itertools.count()


class DLPack:
    """The least that has DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **request):
        return self.array.__dlpack__(**request)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class WithArray:
    """An object that NumPy converts, and nothing else does."""

    def __init__(self, array):
        self.array, self.reads = array, 0

    def __array__(self, dtype=None, copy=None):
        self.reads += 1
        return self.array


class ArrowArray:
    """The capsules of one array of Arrow, and nothing else: a matrix is lists of one size."""

    def __init__(self, array):
        self.column = as_arrow(array)

    def __arrow_c_array__(self, requested_schema=None):
        return self.column.__arrow_c_array__(requested_schema)


class ArrowStream:
    """The capsule of two arrays of Arrow, one after the other, and nothing else."""

    def __init__(self, array):
        column, half = as_arrow(array), len(array) // 2
        self.column = pytest.importorskip("pyarrow").chunked_array([column[:half], column[half:]])

    def __arrow_c_stream__(self, requested_schema=None):
        return self.column.__arrow_c_stream__(requested_schema)


class Described:
    """An object that has a shape, a type and [], and nothing else."""

    def __init__(self, array, refused=()):
        self.array, self.refused, self.reads = array, refused, 0
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, index):
        assert isinstance(index, int | slice | tuple | type(...))
        if isinstance(index, self.refused):
            raise TypeError(f"no {index}")
        self.reads += 1
        return self.array[index]


def as_arrow(array):
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array(numpy.ascontiguousarray(array).reshape(-1))
    for width in array.shape[:0:-1]:
        column = arrow.FixedSizeListArray.from_arrays(column, width)
    return column


def as_hdf5(array):
    name = f"inputs-{next(FILES)}"
    return (
        pytest.importorskip("h5py").File(name, "w", driver="core", backing_store=False).create_dataset("x", data=array)
    )


def require_columns(array):
    if array.ndim > 2:
        pytest.skip("a frame has two dimensions")


def as_pandas(array):
    pandas = pytest.importorskip("pandas")
    require_columns(array)
    return pandas.Series(array) if array.ndim == 1 else pandas.DataFrame(array)


def as_polars(array):
    polars = pytest.importorskip("polars")
    require_columns(array)
    return polars.Series(array) if array.ndim == 1 else polars.DataFrame(array)


def as_jax(array):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return jax.numpy.asarray(array)


def as_datasets(array):
    datasets = pytest.importorskip("datasets")
    feature = datasets.Value(str(array.dtype))
    for width in array.shape[:0:-1]:
        feature = datasets.Sequence(feature, length=width)
    return datasets.Dataset.from_dict({"x": array.tolist()}, features=datasets.Features({"x": feature}))["x"]


# Objects that are arrays by some protocol.
ARRAYS = {
    "dlpack": DLPack,
    "array": WithArray,
    "arrow_array": ArrowArray,
    "arrow_stream": ArrowStream,
    "described": Described,
    "described_slices": lambda array: Described(array, (tuple, type(...))),
    "described_ellipsis": lambda array: Described(array, (tuple, slice)),
    "hdf5": as_hdf5,
    "zarr": lambda array: pytest.importorskip("zarr").array(array),
    "pyarrow": as_arrow,
    "pandas": as_pandas,
    "polars": as_polars,
    "torch": lambda array: pytest.importorskip("torch").from_numpy(array),
    "jax": as_jax,
}
# Those that are arrays only where numbers of samples, or samples, are asked for.
SEQUENCES = {"list": lambda array: array.tolist(), "datasets": as_datasets}

N, ROWS = numpy.arange(12), numpy.arange(24.0).reshape(12, 2)
IDS, CUTS, SHAPES = (
    numpy.repeat(numpy.arange(4), 3),
    numpy.array([0, 3, 5, 9, 12]),
    numpy.array([[1, 5], [1, 3], [2, 2]]),
)
TOKENS, DOCUMENTS = numpy.arange(100), numpy.array([0, 30, 100])
LINE = N * 1.0


def with_lists(**fields):
    return bl.SequenceDataset(ids=[numpy.arange(n + 1) for n in range(12)], **fields)


def windows(series=LINE, **options):
    return bl.WindowDataset(series, 4, 2, **options)


def sparse(data=LINE[1:5], indices=N[:4], starts=N[:5]):
    return bl.TensorDataset(bl.SparseRows((data, indices, starts), shape=(4, 4), layout="dense"))


def mapped(rows, as_kind):
    return bl.MapDataset(list(rows), lambda row: {"x": as_kind(row), "y": [row[0], 1.0]})


def mixed(dataset):
    return bl.Mixture({"a": dataset, "b": dataset}, weights={"a": 1, "b": 2})


def joined(dataset):
    return dataset.concat(dataset)


def in_chunks(rows, as_kind):
    return bl.ChunkDataset([6, 6], lambda chunk: {"x": as_kind(rows[6 * chunk : 6 * chunk + 6])})


# By the name of an argument: its array, or a list of its arrays, and what makes a dataset of it.
ARGUMENTS = {
    "rows": (ROWS, lambda x: bl.TensorDataset(x=x)),
    "numbers": (N, bl.TensorDataset),
    "blocks": (numpy.arange(48.0).reshape(4, 3, 4), bl.TensorDataset),
    "sequence_rows": (ROWS, lambda x: with_lists(x=x)),
    "sequence_numbers": (N, lambda x: with_lists(x=x)),
    "sequences": ([ROWS[:3], ROWS[3:5], ROWS[5:]], lambda x: bl.SequenceDataset(x=x)),
    "sequence_values": (ROWS, lambda x: bl.SequenceDataset(x=(x, CUTS))),
    "sequence_offsets": (CUTS, lambda x: bl.SequenceDataset(x=(ROWS, x))),
    "sequence_shapes": (SHAPES, lambda x: bl.SequenceDataset(x=(N, x))),
    "sizes": (N, lambda x: with_lists(sizes=x)),
    "named_sizes": (N, lambda x: with_lists(sizes={"patches": x})),
    "group_ids": (IDS, lambda x: bl.GroupDataset(x, ROWS)),
    "group_rows": (ROWS, lambda x: bl.GroupDataset(IDS, x)),
    "group_numbers": (N, lambda x: bl.GroupDataset(IDS, ROWS, x)),
    "series": (LINE, windows),
    "series_rows": (ROWS, windows),
    "list_of_series": ([ROWS[:7], ROWS[3:]], windows),
    "series_values": (ROWS, lambda x: windows((x, numpy.array([0, 6, 12])))),
    "series_offsets": (numpy.array([0, 6, 12]), lambda x: windows((ROWS, x))),
    "marks": (ROWS, lambda x: windows(marks=x)),
    "past": (ROWS, lambda x: windows(past={"p": x})),
    "future": (ROWS, lambda x: windows(future={"p": x})),
    "labels": (N, lambda x: windows(labels=x, labels_of="steps")),
    "named_labels": (ROWS[:7], lambda x: windows(labels={"label": x})),
    "static": (ROWS[:1], lambda x: windows(static={"s": x})),
    "time": (N, lambda x: windows(time=x, index=True)),
    "series_by_name": (ROWS, lambda x: bl.WindowDataset({"s": x, "t": N}, offsets={"s": [0, 1], "t": [0]})),
    "column_of_a_dict": (LINE, lambda x: windows({"s": x})),
    "tokens": (TOKENS, lambda x: bl.TokenDataset(x, 8)),
    "documents": (DOCUMENTS, lambda x: bl.TokenDataset(TOKENS, 8, documents=x, segment_ids=True)),
    "list_of_documents": ([TOKENS[:30], TOKENS[30:]], lambda x: bl.TokenDataset(x, 8, resets=True)),
    "document_values": (TOKENS, lambda x: bl.TokenDataset((x, DOCUMENTS), 8, resets=True)),
    "parts_of_an_array": ([ROWS[:3], ROWS[3:]], lambda x: bl.TensorDataset(bl.ChunkedArray(x))),
    "sparse_values": (LINE[1:5], sparse),
    "sparse_columns": (N[:4], lambda x: sparse(indices=x)),
    "sparse_starts": (N[:5], lambda x: sparse(starts=x)),
    "map_sizes": (N, lambda x: bl.MapDataset([numpy.arange(n) for n in N], sizes=x)),
    "chunk_sizes": (numpy.array([5, 7]), lambda x: bl.ChunkDataset(x, lambda chunk: ROWS[5 * chunk : 5 + 7 * chunk])),
    "chunk_lengths": (N[:4] + 1, lambda x: bl.ChunkDataset([4], lambda _: as_arrow_lists(N[:4] + 1), lengths=x)),
    "selected": (N[[7, 2, 9]], lambda x: bl.TensorDataset(ROWS).select(x)),
    "mixed": (ROWS, lambda x: mixed(bl.TensorDataset(x=x))),
    "joined": (ROWS, lambda x: joined(bl.TensorDataset(x=x))),
}
# By the name of an option of loaders: its array, and the dataset.
OPTIONS = {
    "weights": (LINE, lambda: bl.TensorDataset(ROWS)),
    "balanced_by": (IDS, lambda: bl.TensorDataset(ROWS)),
    "homogeneous_by": (IDS, lambda: bl.TensorDataset(ROWS)),
    "distinct_by": (N, lambda: bl.TensorDataset(ROWS)),
    "label_counts": (N, with_lists),
}


def as_arrow_lists(lengths):
    return pytest.importorskip("pyarrow").array([list(range(length)) for length in lengths])
