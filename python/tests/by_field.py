"""Options of fields, as the tests draw them: attribute by attribute."""

import batchloom as bl


def by_field(**attributes):
    """The argument `fields`, of values by field for each attribute: ``by_field(dtype={"x": "int64"})``."""
    keys = dict.fromkeys(key for values in attributes.values() for key in values)
    return {
        key: bl.Field(**{name: values[key] for name, values in attributes.items() if key in values}) for key in keys
    }


def padded_with(value):
    """The options that pad with one value, or with values by field."""
    return {"fields": by_field(pad=value)} if isinstance(value, dict) else {"pad_value": value}
