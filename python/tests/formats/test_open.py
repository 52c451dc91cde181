"""The front door: formats by name and by bytes, options that have no use, keywords of kinds."""

import batchloom as bl
import numpy
import pytest
from batchloom.formats.kinds import KINDS, require_keywords
from batchloom.formats.options import NAMES, OpenOptions
from batchloom.formats.registry import FORMATS
from refusals import refused

X = numpy.arange(12.0).reshape(6, 2)


@pytest.fixture
def folder(tmp_path):
    numpy.save(tmp_path / "x.npy", X)
    numpy.savez(tmp_path / "y.npz", y=X)
    return tmp_path


def test_the_format_follows_from_bytes_where_names_do_not_tell(folder):
    (folder / "x.npy").rename(folder / "x.data")
    assert len(bl.open(folder / "x.data")) == 6
    (folder / "y.npz").rename(folder / "y")
    assert bl.open(folder / "y").names == ("y",)
    assert len(bl.open(folder / "x.data", format="npy")) == 6


def test_names_and_bytes_that_differ_are_an_error(folder):
    (folder / "y.npz").rename(folder / "y.npy")
    with refused(bl.DataError, "y.npy", "NumPy arrays", "NumPy archives"):
        bl.open(folder / "y.npy")
    (folder / "z.npy").write_bytes(b"hello")
    with refused(bl.DataError, "z.npy", "b'hello'"):
        bl.open(folder / "z.npy")
    (folder / "e.npy").touch()
    with refused(bl.DataError, "e.npy", "empty"):
        bl.open(folder / "e.npy")


def test_files_of_several_formats_or_of_none(folder):
    with refused(bl.DataError, "x.npy", "y.npz", '"*.npy"'):
        bl.open(folder)
    (folder / "notes.md").write_text("notes")
    with refused(bl.DataError, "notes.md", ".npy", "format="):
        bl.open(folder / "notes.md")
    (folder / "y.npz").unlink()
    assert len(bl.open(folder)) == 6  # beside its notes
    (folder / "more").mkdir()
    (folder / "more" / "notes.md").write_text("notes")
    with refused(bl.DataError, "notes.md"):
        bl.open([folder / "x.npy", folder / "more" / "notes.md"])


def test_options_without_use_are_refused_by_name(folder):
    given = {
        "dtype": "int8",
        "header": 3,
        "nulls": {"x": 0},
        "memory": "1MB",
        "chunks_open": 4,
        "fn": len,
        "on_error": "skip",
    }
    for name in given:
        if name != "memory":
            with refused(bl.ArgumentError, name, "NumPy arrays"):
                bl.open(folder / "x.npy", **{name: given[name]})
    assert {*given, "columns", "kind", "format"} == {*NAMES}
    assert {name for each in FORMATS for name in each.takes} <= {*NAMES}


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"kind": "table"}, ["kind", "'table'", "'rows'"]),
        ({"format": "csv"}, ["format", "'csv'", "'npy'"]),
        ({"nulls": 0}, ["nulls", "0"]),
        ({"header": 1.5}, ["header", "1.5"]),
        ({"fn": 3}, ["fn", "int"]),
        ({"kind": "tokens"}, ["'tokens'", "seq_len"]),
        ({"kind": "groups"}, ["'groups'", "id"]),
        ({"seq_len": 3}, ["seq_len", "'tokens'", "'rows'"]),
        ({"kind": "windows", "seq_len": 3}, ["seq_len", "'tokens'", "'windows'"]),
        ({"columns": ["x"]}, ["columns", "x.npy"]),
    ],
    ids=str,
)
def test_options_that_make_no_sense(folder, options, values):
    with refused(bl.ArgumentError, *values):
        bl.open(folder / "x.npy", **options)


def test_arguments_are_checked_before_files_are_looked_for():
    with refused(bl.ArgumentError, "'table'"):
        bl.open("nowhere.npy", kind="table")
    with pytest.raises(TypeError, match=r"open\(\).*'horizn'.*horizon"):
        bl.open("nowhere.npy", kind="windows", horizn=3)


@pytest.mark.parametrize(
    ("name", "meant"), [("batch_size", "batch_size of the DataLoader"), ("coloms", "columns"), ("fields", "columns")]
)
def test_unknown_keywords_name_what_is_meant(folder, name, meant):
    with pytest.raises(TypeError, match=rf"'{name}'; did you mean {meant}"):
        bl.open(folder / "x.npy", **{name: 3})


@pytest.mark.parametrize("kind", KINDS)
def test_keywords_of_a_kind_are_those_of_its_class(kind):
    needed = {"groups": {"id": "q"}, "tokens": {"seq_len": 3}}.get(kind, {})
    own = {"sequences": "own_lengths", "groups": "layout", "tokens": "separator", "windows": "input_len"}
    require_keywords(kind, needed | ({own[kind]: None} if kind in own else {}), NAMES)
    with pytest.raises(TypeError):
        require_keywords(kind, {"neither": 1}, NAMES)


def test_every_option_is_documented():
    for name in NAMES:
        assert f"        {name}: " in OpenOptions.__doc__
        assert name in bl.open.__doc__


def test_what_is_no_file_names_its_type():
    import pandas

    with refused(bl.ArgumentError, "DataFrame"):
        bl.open(pandas.DataFrame({"x": [1]}))
