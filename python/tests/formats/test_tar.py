"""Tars of samples: members by stems, read by places, in every form of headers; against `tarfile`, and damaged."""

import functools
import io
import itertools
import os
import pickle
import tarfile

import batchloom as bl
import numpy
import pytest
from batchloom.formats.tar_headers import list_members
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import damaged
from oracles.runs import assert_resumes, few
from oracles.selections import torch_seen
from refusals import refused

FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
SAMPLES = [(f"{k:04}", {"x": bytes([k]) * (k % 5 + 1), "cls": b"%d" % k}) for k in range(23)]


def write(path, members, form=tarfile.USTAR_FORMAT, kinds=None):
    with tarfile.open(path, "w", format=form) as file:
        for name, contents in members:
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            info.type = (kinds or {}).get(name, tarfile.REGTYPE)
            info.linkname = "target" if info.islnk() or info.issym() else ""
            file.addfile(info, io.BytesIO(contents))
    return path


def members(samples):
    return [(f"{key}.{name}", contents) for key, parts in samples for name, contents in parts.items()]


def decode(sample):
    return {"x": numpy.frombuffer(sample["x"][:1], numpy.uint8), "cls": int(sample["cls"]), "key": sample.key}


def decode_lengths(sample):
    return {"x": numpy.frombuffer(sample["x"], numpy.uint8)}


names = st.text("aä/._-", min_size=1, max_size=5).map(lambda name: name.rstrip("/") or "a") | st.text(
    "b", min_size=90, max_size=300
)


@pytest.mark.parametrize("form", FORMS)
@given(listed=st.lists(st.tuples(names, st.binary(max_size=1500)), max_size=6, unique_by=lambda each: each[0]))
def test_members_are_those_of_tarfile(form, tmp_path_factory, listed):
    path = tmp_path_factory.mktemp("tars") / "a.tar"
    try:
        write(path, listed, FORMS[form])
    except ValueError:
        return  # a name that this form does not hold
    contents = path.read_bytes()
    with tarfile.open(path) as file:
        expected = [(each.name, file.extractfile(each).read()) for each in file if each.isreg()]
    found = [(name, contents[start : start + size]) for name, start, size in list_members(path)]
    assert found == expected


def grouped(listed):
    """Samples by stem, in the order of their first members, as `{extension: bytes}`."""
    found = {}
    for name, contents in listed:
        folder, _, last = name.rpartition("/")
        stem, dot, extension = last.partition(".")
        if stem and dot and not (name.startswith("__") and name.endswith("__")):
            found.setdefault(f"{folder}/{stem}" if "/" in name else stem, {})[extension.lower()] = contents
    return list(found.items())


@few
@given(
    keys=st.lists(st.sampled_from(["a", "b", "dir/a", "dir.x/b", "__meta__", ".hidden"]), max_size=8),
    extensions=st.lists(st.sampled_from(["jpg", "seg.png", "cls", "TXT"]), min_size=8, max_size=8),
)
def test_members_of_one_stem_are_a_sample(tmp_path_factory, keys, extensions):
    listed = list(dict.fromkeys(f"{key}.{extension}" for key, extension in zip(keys, extensions, strict=False)))
    listed = [(name, b"%d" % place) for place, name in enumerate(listed)]
    path = write(tmp_path_factory.mktemp("tars") / "a.tar", [("README", b"no extension"), *listed])
    expected = grouped(listed)
    if not expected:
        with refused(bl.DataError, "a.tar"):
            bl.open(path)
        return
    dataset = bl.open(path, fn=dict)
    assert [(dataset.items[k].key, dataset[k]) for k in range(len(dataset))] == expected


@pytest.mark.law("L1", "L2", "L4")
@few
@given(
    places=st.lists(st.integers(0, 23), max_size=3).map(sorted),
    form=st.sampled_from(list(FORMS)),
    seed=st.integers(0, 99),
)
def test_an_epoch_over_tars_is_the_epoch_in_memory(tmp_path_factory, places, form, seed):
    folder = tmp_path_factory.mktemp("tars")
    ends = [0, *places, 23]
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        write(folder / f"shard-{number}.tar", members(SAMPLES[start:end]), FORMS[form])
    found = bl.open(folder, fn=decode)
    expected = bl.TensorDataset(
        x=numpy.array([[k] for k in range(23)], numpy.uint8), cls=numpy.arange(23), key=[key for key, _ in SAMPLES]
    )
    options = {"batch_size": 4, "shuffle": True, "seed": seed}
    for world in range(1, 5):
        for rank in range(world):
            ranks = {"world_size": world, "rank": rank}
            assert torch_seen(bl.DataLoader(found, **options, **ranks)) == torch_seen(
                bl.DataLoader(expected, **options, **ranks)
            )
    make = functools.partial(bl.DataLoader, found, **options)
    assert_resumes(make(), make, [torch_seen(bl.DataLoader(expected, **options))], torch_seen)


def test_members_that_come_apart_are_one_sample(tmp_path):
    """As tars have them whose members were named one extension after the other."""
    apart = [(f"{key}.{name}", parts[name]) for name in ("x", "cls") for key, parts in SAMPLES]
    found = bl.open(write(tmp_path / "a.tar", apart))
    assert [found[k] for k in range(23)] == [parts for _, parts in SAMPLES]
    (batch, *_) = bl.DataLoader(found, 4)
    assert batch == {"x": [parts["x"] for _, parts in SAMPLES[:4]], "cls": [parts["cls"] for _, parts in SAMPLES[:4]]}


def test_extensions_are_columns(tmp_path):
    path = write(tmp_path / "a.tar", [*members(SAMPLES), ("0000.json", b"{}")])
    found = bl.open(path, columns={"image": "x", "label": "cls"}, fn=lambda sample: int(sample["label"]))
    assert found[7] == 7
    assert bl.open(path, columns=["cls"])[3] == {"cls": b"3"}
    with refused(bl.DataError, "0001", "a.tar", "'json'", "fn="):
        bl.open(path)
    with refused(bl.DataError, "0001", "a.tar", "'json'"):
        bl.open(path, columns=["json"], fn=len)
    with refused(bl.ArgumentError, "'jpg'", "'x'"):
        bl.open(path, columns=["jpg"])
    with refused(bl.ArgumentError, "'both'"):
        bl.open(path, columns={"both": ["x", "cls"]})
    with refused(bl.ArgumentError, "kind", "a.tar"):
        bl.open(path, kind="rows")
    with pytest.raises(TypeError, match=r"'worker'; did you mean workers"):
        bl.open(path, columns=["cls"], worker="threads")


def test_sizes_and_skipped_samples(tmp_path):
    path = write(tmp_path / "a.tar", members(SAMPLES))
    lengths = [len(parts["x"]) for _, parts in SAMPLES]
    for sizes in ({"sizes": lengths}, {"key": lambda sample: len(sample["x"])}):
        found = bl.open(path, fn=decode_lengths, **sizes)
        assert found.sizes.tolist() == lengths
        packed = bl.DataLoader(found, batching=bl.Packing(8), shuffle=True)
        assert sum(len(batch["x"]) for batch in packed) == sum(lengths)
    found = bl.open(path, fn=lambda sample: 100 // int(sample["cls"]), on_error="skip")
    loader = bl.DataLoader(found, 23)
    assert next(iter(loader))["weight"].tolist()[:2] == [0, 1] if isinstance(next(iter(loader)), dict) else True
    with refused(bl.SampleError, "sample 0", "0000 of", "a.tar"):
        next(iter(bl.DataLoader(bl.open(path, fn=lambda sample: 100 // int(sample["cls"])), 4)))


def test_processes_read_tars(tmp_path):
    path = write(tmp_path / "a.tar", members(SAMPLES))
    found = bl.open(path, fn=decode_lengths, columns=["x"], sizes=[len(parts["x"]) for _, parts in SAMPLES])
    again = pickle.loads(pickle.dumps(found))
    options = {"batching": bl.TokenBudget(12), "shuffle": True}
    assert torch_seen(bl.DataLoader(again, **options)) == torch_seen(bl.DataLoader(found, **options))
    assert len(pickle.dumps(found.items)) < 5000


def test_tars_that_change_are_errors(tmp_path):
    paths = [write(tmp_path / f"{k}.tar", members(SAMPLES[k : k + 2])) for k in (0, 2)]
    found = bl.open(tmp_path, columns=["cls"])
    assert found[0] == {"cls": b"0"}
    with open(paths[0], "r+b") as file:
        file.write(b"\1")
        os.utime(paths[0], ns=(1, 1))
    write(paths[1], members(SAMPLES[4:6]))
    os.utime(paths[1], ns=(2, 2))
    for sample, name in ((0, "0.tar"), (2, "2.tar")):
        with refused(bl.SampleError, f"sample {sample}", name, "changed"):
            next(iter(bl.DataLoader(found.select([sample]), 1)))
    os.unlink(paths[1])
    with refused(bl.SampleError, "2.tar"):
        next(iter(bl.DataLoader(pickle.loads(pickle.dumps(found)).select([2]), 1)))


def test_more_tars_than_may_be_open(tmp_path, monkeypatch):
    monkeypatch.setattr("batchloom.formats.items.MOST_OPEN", 3)
    for k, sample in enumerate(SAMPLES):
        write(tmp_path / f"{k}.tar", members([sample]))
    found = bl.open(tmp_path, columns=["cls"])
    before = len(os.listdir("/proc/self/fd"))
    seen = [label for batch in bl.DataLoader(found, 4, shuffle=True) for label in batch["cls"]]
    assert sorted(seen) == sorted(parts["cls"] for _, parts in SAMPLES)
    assert len(os.listdir("/proc/self/fd")) <= before + 3


@pytest.mark.parametrize(
    ("kind", "word"),
    [(tarfile.SYMTYPE, "link"), (tarfile.LNKTYPE, "hard link"), (tarfile.FIFOTYPE, "pipe"), (b"S", "sparse")],
)
def test_members_that_are_no_files_are_named(tmp_path, kind, word):
    path = write(tmp_path / "a.tar", [("a.x", b""), ("b.x", b"")], tarfile.GNU_FORMAT, {"b.x": kind})
    with refused(bl.DataError, "'b.x'", "a.tar", word):
        bl.open(path)


def test_sparse_files_of_pax_are_named(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as file:
        info = tarfile.TarInfo("a.x")
        info.pax_headers = {"GNU.sparse.major": "1"}
        file.addfile(info, io.BytesIO())
    with refused(bl.DataError, "'a.x'", "sparse"):
        bl.open(tmp_path / "a.tar")


def test_folders_in_tars_and_twice_the_same_member(tmp_path):
    path = write(tmp_path / "a.tar", [("dir", b""), ("dir/0.x", b"1")], kinds={"dir": tarfile.DIRTYPE})
    assert bl.open(path).items[0].key == "dir/0"
    path = write(tmp_path / "b.tar", [("0.x", b"1"), ("1.x", b"1"), ("0.X", b"2")])
    with refused(bl.DataError, "0.x", "b.tar", "twice"):
        bl.open(path)


def test_what_is_no_tar_or_not_whole(tmp_path):
    whole = write(tmp_path / "a.tar", members(SAMPLES)).read_bytes()
    path = tmp_path / "b.tar"
    for contents, values in (
        (whole[:1024], ["1024", "end"]),
        (whole[:-10240], ["end"]),
        (whole + whole, ["end", "put together"]),
        (whole[:1024] + b"x" + whole[1025:], ["byte 1024"]),
        (b"\x1f\x8b" + bytes(1000), ["compressed"]),
    ):
        path.write_bytes(contents)
        with refused(bl.DataError, "b.tar", *values):
            bl.open(path)
    (tmp_path / "c.tar.gz").write_bytes(b"\x1f\x8b" + bytes(1000))
    with refused(bl.DataError, "c.tar.gz", "compressed"):
        bl.open(tmp_path / "c.tar.gz")


def test_large_numbers_in_binary(tmp_path):
    """A size of more than 8 GiB is written in binary: a header that has one, of a file that is not there."""
    info = tarfile.TarInfo("a.x")
    info.size = 9 << 30
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with refused(bl.DataError, "a.tar", str(9 << 30)):
        bl.open(path)


WHOLE = {}


@pytest.mark.parametrize("form", FORMS)
@given(place=st.floats(0, 1), byte=st.integers(0, 255), length=st.floats(0.5, 1) | st.just(1.0))
def test_a_damaged_tar_opens_or_is_a_typed_error(form, tmp_path_factory, place, byte, length):
    folder = tmp_path_factory.mktemp("damaged")
    if form not in WHOLE:
        listed = [*members(SAMPLES[:3]), ("long" * 40 + ".x", b"1")]
        listed = listed if form != "ustar" else listed[:-1]
        WHOLE[form] = write(folder / "whole.tar", listed, FORMS[form]).read_bytes()
    path = folder / "a.tar"
    path.write_bytes(damaged(WHOLE[form], place, byte, length))
    try:
        found = str(len(list(bl.DataLoader(bl.open(path, fn=lambda sample: sample.key), 2))))
    except bl.Error as error:
        found = str(error)
    assert found


def test_tars_without_members(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with refused(bl.DataError, "a.tar", "no members"):
        bl.open(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        member = tarfile.TarInfo("0.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"b"))
    assert [dict(sample) for sample in bl.open(tmp_path / "*.tar")] == [{"txt": b"b"}]
