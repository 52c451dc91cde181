"""Errors as they are promised: the very class, and each value that the message names. The words between are free.

And values that no argument takes.
"""

import contextlib
import re

import batchloom as bl
import numpy
import pytest
from hypothesis import strategies as st

NOT_INTEGERS = [2.5, 2.0, float("nan"), float("inf"), True, False, "3", None, [3], 3j, numpy.float32(3), numpy.True_]
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
plain_values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=5)
# Words of the engine that no message in Python says.
RUST = re.compile(
    r"\b[A-Z]\w+::|\b(?:Some|Ok|Err)\(|\b(?:Option|Vec|Result|usize|u64|i64|u32|i32)\b|\((?:true|false)\)"
)


@contextlib.contextmanager
def refused(kind, *values):
    """Expects an error of this very class, or of one of these, whose message names each value.

    A set holds values of which one is enough. Only :class:`batchloom.Error` stands for every class below it.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    with pytest.raises(kinds) as caught:
        yield caught
    error = caught.value
    assert type(error) in kinds or bl.Error in kinds, f"expected {kinds}, found {type(error)}: {error}"
    missing = [value for value in values if not names(str(error), value)]
    assert not missing, f"the message names no {missing}: {error}"
    assert not RUST.search(str(error)), f"a user of Python reads Rust: {error}"
    # The traceback holds this frame and those of the test, which so hold what the test made until garbage is collected.
    del caught, error


def names(message, value):
    """Tells whether a message holds a value, not as part of a longer word or number; a word may be in the plural."""
    if isinstance(value, set):
        return any(names(message, each) for each in value)
    before = r"(?<![\w.-])" if value[:1].isdecimal() else r"(?<!\w)" if value[:1].isalpha() else ""
    after = r"s?(?!\w|\.\d)" if value[-1:].isalpha() else r"(?!\w|\.\d)" if value[-1:].isdecimal() else ""
    return re.search(before + re.escape(value) + after, message) is not None
