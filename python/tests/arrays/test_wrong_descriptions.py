"""Producers that describe their memory wrongly: an error that says how, and no crash."""

import ctypes
import gc

import batchloom as bl
import numpy
import pytest
from capsules import ArrowProducer, DLProducer, ReleaseArray, ReleaseSchema

FOUR = ctypes.c_double * 4
LISTS = [[1.0], [2.0, 3.0], []]


def test_a_right_producer_of_dlpack_is_read_and_let_go():
    producer = DLProducer(FOUR(1, 2, 3, 4))
    dataset = bl.TensorDataset(producer)
    (batch,) = next(iter(bl.DataLoader(dataset, 4)))
    assert batch.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert producer.deleted == 0
    del dataset, batch
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"data": None}, "has elements, and its address is 0"),
        ({"byte_offset": 2**64 - 8}, "leads outside of memory"),
        ({"byte_offset": 2**63}, "leads outside of memory"),
        ({"shape": (-1,)}, "negative"),
        ({"shape": (2**62, 2**62)}, "overflow"),
        ({"shape": (4,), "strides": (2**62,)}, "larger than memory can be"),
        ({"bits": 13}, "13 bits"),
        ({"code": 77}, "code 77"),
        ({"lanes": 4}, "4 lanes"),
    ],
)
def test_wrong_dlpack(entries, message):
    producer = DLProducer(FOUR(1, 2, 3, 4), **entries)
    with pytest.raises(bl.Error, match=message):
        bl.TensorDataset(producer)
    assert producer.deleted == 1, "what was taken is let go"


def test_an_offset_that_is_no_multiple_of_the_element_is_copied():
    memory = (ctypes.c_uint8 * 40)()
    numpy.frombuffer(memory, numpy.uint8)[3:35] = numpy.arange(4.0).view(numpy.uint8)
    dataset = bl.TensorDataset(DLProducer(memory, byte_offset=3))
    assert [sample[0] for sample in dataset] == [0.0, 1.0, 2.0, 3.0]


def test_no_elements_need_no_memory():
    assert len(bl.TensorDataset(DLProducer(None, shape=(0,)))) == 0


def texts_of(values, ends, format=b"u"):
    """A producer of texts: these bytes, cut at these places."""
    kind = ctypes.c_int32 if format == b"u" else ctypes.c_int64
    held = (ctypes.c_uint8 * max(len(values), 1))(*values)
    return ArrowProducer(format, [None, (kind * len(ends))(*ends), held], len(ends) - 1)


@pytest.mark.parametrize("format", [b"u", b"U"])
def test_right_texts_are_objects(format):
    texts = ["a", "", "äö", "𝄞", "longer than a few bytes"]
    held = [text.encode() for text in texts]
    ends = [sum(map(len, held[:count])) for count in range(len(held) + 1)]
    producer = texts_of(b"".join(held), ends, format)
    dataset = bl.TensorDataset(x=producer, y=numpy.arange(5))
    assert [sample["x"] for sample in dataset] == texts
    assert [text for batch in bl.DataLoader(dataset, 2, drop_last=False) for text in batch["x"]] == texts
    part = texts_of(b"".join(held), ends, format)
    part.array.offset, part.array.length = 2, 2
    assert [sample["x"] for sample in bl.TensorDataset(x=part)] == texts[2:4]
    none = texts_of(b"", [0], format)
    assert len(bl.TensorDataset(x=none)) == 0


@pytest.mark.parametrize(
    ("values", "ends", "buffers", "message"),
    [
        (b"\xff\xfea", [0, 3], 3, "no UTF-8"),
        ("ä".encode(), [0, 1, 2], 3, "no UTF-8"),
        (b"abc", [0, 3, 1], 3, "offset 2 of its .* is 1, below 3"),
        (b"abc", [-1, 3], 3, "below 0"),
        (b"abc", [0, 3], 2, "2 buffers"),
    ],
)
def test_wrong_texts(values, ends, buffers, message):
    producer = texts_of(values, ends)
    producer.array.n_buffers = buffers
    with pytest.raises(bl.DataError, match=message):
        bl.TensorDataset(x=producer)


def test_texts_without_memory_or_with_nulls():
    missing = ArrowProducer(b"u", [None, (ctypes.c_int32 * 2)(0, 3), None], 1)
    with pytest.raises(bl.DataError, match="reach to byte 3, and there is no buffer"):
        bl.TensorDataset(x=missing)
    held = [(ctypes.c_uint8 * 1)(0b01), (ctypes.c_int32 * 3)(0, 1, 2), (ctypes.c_uint8 * 2)(97, 98)]
    null = ArrowProducer(b"u", held, 2)
    null.array.null_count = 1
    with pytest.raises(bl.DataError, match="field x has nulls"):
        bl.TensorDataset(x=null)


@pytest.mark.parametrize("format", [b"+l", b"+L", b"+w:2"])
def test_right_lists_are_read(format):
    lists = [[1.0, 2.0], [3.0, 4.0]] if format == b"+w:2" else LISTS
    producer = ArrowProducer.lists(lists, format)  # whose memory lasts as long as itself
    dataset = bl.SequenceDataset(x=producer)
    assert [list(dataset[sample]["x"]) for sample in range(len(lists))] == lists


def change(**entries):
    """Change entries of the array."""
    return lambda producer: [setattr(producer.array, name, value) for name, value in entries.items()]


def child(**entries):
    """Change entries of the array of values."""
    return lambda producer: [setattr(producer.children[0].array, name, value) for name, value in entries.items()]


def schema(**entries):
    """Change entries of the schema."""
    return lambda producer: [setattr(producer.schema, name, value) for name, value in entries.items()]


def offsets(*values):
    """Change the offsets."""

    def write(producer):
        for place, value in enumerate(values):
            producer.memory[1][place] = value

    return write


def without_values(producer):
    producer.children[0].pointers[1] = None


def without_offsets(producer):
    producer.pointers[1] = None


def without_child(producer):
    producer.arrays[0] = ctypes.POINTER(type(producer.array))()


def without_child_schema(producer):
    producer.schemas[0] = ctypes.POINTER(type(producer.schema))()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (change(length=-1), "length -1"),
        (change(length=2**62), "length 4611686018427387904"),
        (change(offset=-3), "offset -3"),
        (change(offset=2**63 - 1), "offset 9223372036854775807"),
        (change(null_count=-2), "-2 nulls"),
        (change(null_count=99), "99 nulls"),
        (change(null_count=1), "no buffer that says where"),
        (change(n_buffers=0), "0 buffers"),
        (change(n_buffers=2**40), "buffers"),
        (change(n_children=0), "0 children"),
        (change(n_children=-1), "-1 children"),
        (change(children=None), "no list of them"),
        (change(buffers=None), "no list of them"),
        (change(release=ReleaseArray()), "released, or taken before"),
        (child(length=-1), "length -1"),
        (child(length=2), "reach to value 3, and there are 2"),
        (child(release=ReleaseArray()), "released, or taken before"),
        (child(n_buffers=1), "1 buffers"),
        (schema(format=None), "no format"),
        (schema(format=b"\xff"), "not UTF-8"),
        (schema(format=b"+w:-2"), "."),
        (schema(format=b"+w:x"), "."),
        (schema(format=b"nonsense"), "."),
        (schema(n_children=0), "."),
        (schema(n_children=2**40), "children"),
        (schema(children=None), "no list of them"),
        (schema(release=ReleaseSchema()), "released, or taken before"),
        (offsets(0, 2, 1, 3), "offset 2 of its lists is 1, below 2"),
        (offsets(-5), "offset 0 of its lists is -5"),
        (offsets(0, 1, 3, 2**30), "reach to value 1073741824"),
        (without_values, "no buffer of them"),
        (without_offsets, "no buffer of them"),
        (without_child, "values of its lists are missing"),
        (without_child_schema, "a child of its schema is missing"),
    ],
)
def test_wrong_arrow(damage, message):
    producer = ArrowProducer.lists(LISTS)
    damage(producer)
    with pytest.raises(bl.Error, match=message):
        bl.SequenceDataset(x=producer)


@pytest.mark.parametrize("format", [b"+w:3", b"+w:2147483647"])
def test_fixed_lists_beyond_their_values(format):
    producer = ArrowProducer.lists([[1.0, 2.0], [3.0, 4.0]], format)
    with pytest.raises(bl.DataError, match="reach to value"):
        bl.SequenceDataset(x=producer)


def test_the_same_struct_twice():
    producer = ArrowProducer.lists(LISTS)
    bl.SequenceDataset(x=producer)
    with pytest.raises(bl.DataError, match="taken before"):
        bl.SequenceDataset(x=producer)


def test_capsules_of_another_name_are_refused():
    class Swapped(ArrowProducer):
        def __arrow_c_array__(self, requested_schema=None):
            return tuple(reversed(super().__arrow_c_array__()))

    with pytest.raises(bl.DataError, match="gave no Arrow array"):
        bl.SequenceDataset(x=Swapped.lists(LISTS))


def test_a_stream_that_was_taken():
    pyarrow = pytest.importorskip("pyarrow")
    chunked = pyarrow.chunked_array([[[1, 2], [3]], [[4]]])
    capsule = chunked.__arrow_c_stream__()

    class Once:
        def __arrow_c_stream__(self, requested_schema=None):
            return capsule

    assert len(bl.SequenceDataset(x=Once())) == 3
    with pytest.raises(bl.DataError, match="taken before"):
        bl.SequenceDataset(x=Once())
