"""Names of parametrised tests that are the same in every process."""

import re


def named(value):
    """A value as text, without the address at which it lies."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
