"""Structs of C, as DLPack's and Arrow's producers hand them out, for tests that describe memory wrongly."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]  # fmt: skip


DLDeleter = ctypes.CFUNCTYPE(None, c_void_p)


class DLManaged(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", c_void_p), ("deleter", DLDeleter)]


class DLProducer:
    """A producer of one tensor of float64 on the CPU, of which any entry may be another."""

    def __init__(self, memory=None, shape=(4,), strides=None, **entries):
        self.memory, self.deleted = memory, 0
        self.lists = [(c_int64 * len(each))(*each) for each in (shape, strides or ())]
        tensor = DLTensor(
            data=ctypes.addressof(memory) if memory is not None else None, device_type=1, ndim=len(shape), code=2,
            bits=64, lanes=1, shape=self.lists[0], strides=self.lists[1] if strides else None,
        )  # fmt: skip
        for name, value in entries.items():
            setattr(tensor, name, value)
        self.deleter = DLDeleter(self._delete)
        self.managed = DLManaged(tensor, None, self.deleter)

    def _delete(self, _):
        self.deleted += 1

    def __dlpack__(self, stream=None):
        return _new_capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return 1, 0


class ArrowSchema(ctypes.Structure):
    pass


class ArrowArray(ctypes.Structure):
    pass


ReleaseSchema, ReleaseArray = (ctypes.CFUNCTYPE(None, POINTER(kind)) for kind in (ArrowSchema, ArrowArray))
ArrowSchema._fields_ = [
    ("format", c_char_p), ("name", c_char_p), ("metadata", c_char_p), ("flags", c_int64), ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))), ("dictionary", POINTER(ArrowSchema)), ("release", ReleaseSchema),
    ("private_data", c_void_p),
]  # fmt: skip
ArrowArray._fields_ = [
    ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64),
    ("n_children", c_int64), ("buffers", POINTER(c_void_p)), ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)), ("release", ReleaseArray), ("private_data", c_void_p),
]  # fmt: skip


@ReleaseSchema
def _release_schema(schema):
    schema.contents.release = ReleaseSchema()


@ReleaseArray
def _release_array(array):
    array.contents.release = ReleaseArray()


class ArrowProducer:
    """A producer of an Arrow array. Its memory lasts as long as itself.

    ``ArrowProducer.lists([[1.0], [2.0, 3.0]])`` is a right one. Its structs and those of its children may be changed.
    """

    def __init__(self, format, buffers, length, children=()):
        self.children = list(children)
        self.memory = buffers
        self.pointers = (c_void_p * max(len(buffers), 1))(
            *(None if each is None else ctypes.addressof(each) for each in buffers)
        )
        self.schemas = (POINTER(ArrowSchema) * max(len(self.children), 1))(
            *(ctypes.pointer(child.schema) for child in self.children)
        )
        self.arrays = (POINTER(ArrowArray) * max(len(self.children), 1))(
            *(ctypes.pointer(child.array) for child in self.children)
        )
        count = len(self.children)
        self.schema = ArrowSchema(
            format=format, name=b"x", n_children=count, children=self.schemas if count else None,
            release=_release_schema,
        )  # fmt: skip
        self.array = ArrowArray(
            length=length, n_buffers=len(buffers), n_children=count, buffers=self.pointers,
            children=self.arrays if count else None, release=_release_array,
        )  # fmt: skip

    @classmethod
    def numbers(cls, values):
        return cls(b"g", [None, (ctypes.c_double * len(values))(*values)], len(values))

    @classmethod
    def lists(cls, lists, format=b"+l"):
        values = cls.numbers([value for each in lists for value in each])
        if format.startswith(b"+w"):
            return cls(format, [None], len(lists), [values])
        kind = c_int64 if format == b"+L" else c_int32
        ends = [sum(map(len, lists[:count])) for count in range(len(lists) + 1)]
        return cls(format, [None, (kind * len(ends))(*ends)], len(lists), [values])

    def __arrow_c_array__(self, requested_schema=None):
        return (
            _new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None),
            _new_capsule(ctypes.addressof(self.array), b"arrow_array", None),
        )
