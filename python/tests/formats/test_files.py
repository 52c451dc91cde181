"""Files by path, pattern, folder and list: which they are, in which order, and what is refused."""

import itertools
import os
import re

import batchloom as bl
import numpy
import pytest
from batchloom.formats.files import expand_braces, find_files, natural_key
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

NAMES = ["shard-10.npy", "shard-2.npy", "shard-1.npy", "other.npy", "b.bin"]


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / name).touch()
    (tmp_path / ".hidden.npy").touch()
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def names(source):
    return [os.path.basename(file) for file in find_files(source)]


def test_patterns_come_in_natural_order(folder):
    assert names(folder / "shard-*.npy") == ["shard-1.npy", "shard-2.npy", "shard-10.npy"]
    assert names(f"{folder}/shard-[12].npy") == ["shard-1.npy", "shard-2.npy"]
    assert names(folder) == ["b.bin", "other.npy", "shard-1.npy", "shard-2.npy", "shard-10.npy"]
    assert names([folder / "other.npy", f"{folder}/shard-*.npy"])[0] == "other.npy"
    assert names(f"{folder}/{{shard-10,other}}.npy") == ["shard-10.npy", "other.npy"]
    assert names(f"{folder}/shard-{{1..2}}.npy") == ["shard-1.npy", "shard-2.npy"]
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "deeper" / "shard-0.npy").touch()
    assert names(f"{folder}/**/shard-[02].npy") == ["shard-0.npy", "shard-2.npy"]


@given(st.lists(st.text("a1290", min_size=1, max_size=6), unique=True))
def test_natural_order_is_an_order(texts):
    """Of whole names: digits compare as numbers, and no two names are equal."""
    found = sorted(texts, key=natural_key)
    assert found == sorted(reversed(texts), key=natural_key)
    numbered = sorted((text for text in texts if text.isdecimal()), key=natural_key)
    assert [int(text) for text in numbered] == sorted(int(text) for text in numbered)


def expanded(pattern):
    """Braces one after the other, the first one first: by recursion."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], expanded(pattern[found.end() :])
    if bounds := re.fullmatch(r"(\d+)\.\.(\d+)", found[1]):
        first, last = map(int, bounds.groups())
        words = [str(number).zfill(len(bounds[1])) for number in range(first, last + 1)]
    else:
        words = found[1].split(",") if "," in found[1] else [found[0]]
    return [before + word + rest for word, rest in itertools.product(words, after)]


pieces = st.sampled_from(["a", "{0..3}", "{08..11}", "{x,y}", "{}", "{z}", "/", "{", "{,b}"])


@given(st.lists(pieces, max_size=4).map("".join))
def test_braces_stand_for_names(pattern):
    assert list(expand_braces(pattern)) == expanded(pattern)


def test_braces_that_make_no_sense():
    with refused(bl.ArgumentError, "9..1"):
        find_files("a-{9..1}.npy")
    with refused(bl.ArgumentError, "names"):
        find_files("a-{0..99999999999}.npy")
    with refused(bl.ArgumentError, "names"):
        find_files("{0..99999}{0..99999}")


def test_a_name_with_braces_or_brackets_is_a_name(tmp_path):
    for name in ("a{0..1}.npy", "b[1].npy"):
        numpy.save(tmp_path / name, numpy.arange(3))
        assert names(tmp_path / name) == [name]


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("shard-3.npy", ["shard-3.npy", "did you mean", "shard-"]),
        ("*.parquet", ["*.parquet", "shard-1.npy", "other.npy"]),
        ("shard-{1..3}.npy", ["shard-3.npy"]),
        ("none/*.npy", ["none", "shard-1.npy"]),
    ],
    ids=str,
)
def test_what_does_not_exist_shows_what_does(folder, source, values):
    with refused(bl.DataError, *values):
        find_files(folder / source)


def test_no_more_than_some_names_are_shown(tmp_path):
    for k in range(30):
        (tmp_path / f"{k}.npy").touch()
    with refused(bl.DataError, "0.npy", "22 more names"):
        find_files(tmp_path / "x*")


@pytest.mark.parametrize(
    ("source", "kind", "values"),
    [
        (3, bl.ArgumentError, ["int"]),
        (None, bl.ArgumentError, ["NoneType"]),
        (b"a.npy", bl.ArgumentError, ["bytes"]),
        ([], bl.ArgumentError, ["[]"]),
        ([3], bl.ArgumentError, ["int"]),
        ("", bl.ArgumentError, ["''"]),
        ("a\0b", bl.ArgumentError, ["path"]),
        ("s3://bucket/a.npy", bl.ArgumentError, ["s3://bucket/a.npy"]),
        ("hf://datasets/x", bl.ArgumentError, ["hf://"]),
        (numpy.arange(3), bl.ArgumentError, ["ndarray"]),
    ],
    ids=str,
)
def test_what_is_no_path_is_refused(source, kind, values):
    with refused(kind, *values):
        find_files(source)


def test_a_file_comes_once(folder):
    with refused(bl.ArgumentError, "other.npy", "2 times"):
        find_files([folder / "other.npy", folder / "o*.npy"])


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "link.npy").symlink_to(tmp_path / "nothing")
    for name in ("pipe.npy", "link.npy"):
        with refused(bl.DataError, name):
            find_files(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with refused(bl.DataError, "empty", "no file"):
        find_files(tmp_path / "empty")
    (tmp_path / "outer" / "train").mkdir(parents=True)
    with refused(bl.DataError, "outer", "train/"):
        find_files(tmp_path / "outer")


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("zarr.json", "{}", ["Zarr", "bl.ChunkDataset"]),
        ("_versions", "", ["Lance"]),
        ("index.json", '{"version": 2, "shards": []}', ["mosaic"]),
        ("index.json", '{"chunks": []}', ["litData"]),
        ("data.mdb", "", ["LMDB"]),
        ("_delta_log", "", ["Delta Lake"]),
    ],
)
def test_folders_of_other_tools_are_named(tmp_path, name, text, values):
    (tmp_path / name).write_text(text)
    (tmp_path / "part-0.bin").touch()
    with refused(bl.DataError, str(tmp_path), *values):
        find_files(tmp_path)
