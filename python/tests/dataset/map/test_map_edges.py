"""Samples on demand at their edges: structures, skipped batches, processes that fail early, draws that come late."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import batchloom as bl
import numpy
import pytest
import torch
from oracles.draws import draws_late_of_torch
from oracles.samples import (
    Unmakeable,
    draws_late,
    empty,
    ends_early,
    ends_slowly,
    failing_eight_to_twelve,
    joins_drawn,
    keeps_state,
    turned,
)
from refusals import refused

WORKERS = ["threads", "processes"]


def loaded(fn, samples=24, *, workers="threads", threads=2, **options):
    dataset = {name: options.pop(name) for name in ("on_error", "sizes") if name in options}
    dataset = bl.MapDataset(range(samples), fn, workers=workers, **dataset)
    return bl.DataLoader(dataset, batch_size=4, num_threads=threads, **options)


def test_loaders_of_one_dataset_have_structures_of_their_own():
    dataset = bl.MapDataset(range(8), lambda number: (numpy.full(2, number), number))
    first = next(iter(bl.DataLoader(dataset, batch_size=4)))
    assert isinstance(first, tuple)
    assert isinstance(first[0], numpy.ndarray)
    joined = next(
        iter(bl.DataLoader(dataset, batch_size=4, collate=lambda samples: {"0": torch.ones(3), "1": torch.ones(2)}))
    )
    assert isinstance(joined, dict)
    assert isinstance(joined["0"], torch.Tensor)
    bare = next(iter(bl.DataLoader(dataset, batch_size=4, collate=lambda samples: [numpy.ones(3), numpy.ones(2)])))
    assert isinstance(bare, list)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_keys_come_in_any_order(workers, threads):
    for batch in loaded(turned, workers=workers, threads=threads):
        assert batch["a"].tolist() == [[-number] * 2 for number in batch["b"]["z"].tolist()]
        assert batch["b"]["y"].tolist() == [2 * number for number in batch["b"]["z"].tolist()]


def test_batches_list_keys_as_samples_do():
    batch = next(iter(loaded(lambda number: {"tokens": numpy.ones(2), "label": number, "extra": {"b": 1, "a": 2}})))
    assert list(batch) == ["tokens", "label", "extra"]
    assert list(batch["extra"]) == ["b", "a"]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_batch_left_out_whole_is_the_same_after_a_resume(workers):
    def make(**options):
        return loaded(failing_eight_to_twelve, workers=workers, on_error="skip", **options)

    def plain(batch):
        return batch[0].tolist(), batch[1].tolist()

    whole = list(map(plain, make()))
    assert whole[2] == ([[0, 0]] * 4, [0] * 4)
    loader = make()
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert list(map(plain, resumed)) == whole[2:]
    ranks = [plain(batch) for rank in range(6) for batch in make(rank=rank, world_size=6)]
    assert ranks == whole


def test_no_sample_can_be_read():
    def fails(number):
        raise OSError(f"no file {number}")

    with refused(bl.SampleError, "no file"):
        next(iter(loaded(fails, on_error="skip")))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("at", [5, 9, 14])
def test_batches_before_a_crash_arrive(threads, at):
    seen = 0
    with refused(bl.SampleError, f"sample {at}"):
        for _ in loaded(partial(ends_early, at), workers="processes", threads=threads):
            seen += 1
    assert seen == at // 4


@pytest.mark.parametrize("workers", WORKERS)
def test_arrays_without_elements(workers):
    batches = list(loaded(empty, workers=workers))
    assert [batch[0].shape for batch in batches] == [(4, 0, 3)] * 6
    assert batches[1][1].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("value", [-1, 300, 0.5, float("nan")])
@pytest.mark.parametrize(
    "way",
    [{"fields": {0: bl.Field(slot=bl.Pad())}}, {"fields": {0: bl.Field(slot=bl.Crop(3))}}, {"sizes": [1, 2] * 12}],
)
def test_padding_that_a_type_does_not_hold(value, way):
    loader = loaded(lambda number: numpy.ones(1 + number % 2, numpy.uint8), pad_value=value, **way)
    with refused(bl.ArgumentError, "uint8", "does not hold"):
        next(iter(loader))


def test_a_number_for_all_fields_leaves_alone_those_without_padding():
    def sample(number):
        return numpy.ones(1 + number % 2, numpy.float32), numpy.uint8(number)

    x, y = next(iter(loaded(sample, pad_value=-1, fields={0: bl.Field(slot=bl.Pad())})))
    assert x.tolist() == [[1, -1], [1, 1]] * 2
    assert y.tolist() == [0, 1, 2, 3]


def test_a_slot_function_may_not_write_to_the_sample(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.ones((8, 3)))
    mapped = numpy.load(tmp_path / "x.npy", mmap_mode="r")

    def writes(sample, slot):
        sample[:] = 2

    for dataset in (bl.MapDataset(mapped), bl.TensorDataset(mapped), bl.TensorDataset(numpy.ones((8, 3)))):
        with refused(bl.SampleError, "read-only"):
            next(iter(bl.DataLoader(dataset, batch_size=4, fields={0: bl.Field(slot=writes)})))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_errors_without_a_message_name_the_sample(on_error):
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def fails(number):
        if number == 2:
            raise MuteError
        return number

    loader = loaded(fails, on_error=on_error)
    if on_error == "raise":
        with refused(bl.SampleError, "sample 2", "MuteError"):
            next(iter(loader))
    else:
        assert next(iter(loader))[1].tolist() == [1, 1, 0, 1]


def test_numbers_beyond_64_bits_name_the_sample():
    with refused(bl.SampleError, "sample 9"):
        list(loaded(lambda number: 2**70 if number == 9 else number))


def test_a_key_that_fails_names_the_item():
    with refused(bl.SampleError, "item 1", "7"):
        bl.MapDataset([[1], 7], key=len)


def test_a_bound_generator_is_kept():
    def sample(number, rng):
        return rng.random()

    mine = numpy.random.default_rng(5)
    batch = next(iter(loaded(partial(sample, rng=mine), threads=1)))
    assert batch.tolist() == numpy.random.default_rng(5).random(4).tolist()


def test_lists_of_a_number_and_an_array():
    number, array = next(iter(loaded(lambda number: [number, {"a": torch.full((2,), float(number))}])))
    assert number.tolist() == [0, 1, 2, 3]
    assert array["a"].shape == (4, 2)


def test_items_that_cannot_be_made_in_a_process():
    loader = bl.DataLoader(bl.MapDataset(Unmakeable(), workers="processes"), batch_size=4, num_threads=1)
    with refused(bl.Error, "the file is gone"):
        next(iter(loader))


LATE = [partial(draws_late, at=at) for at in (0, 30, 40)]
LATE_OF_ONE = [partial(draws_late, of=(name,)) for name in ("random", "numpy")]


@pytest.mark.parametrize("fn", [*LATE, *LATE_OF_ONE, draws_late_of_torch])
def test_draws_that_come_late_follow_from_the_sample(fn):
    def found(processes, start=0):
        loader = loaded(fn, 48, workers="processes", threads=processes, shuffle=True, seed=1)
        state = loader.state_dict()
        if start:
            batches = iter(loader)
            for _ in range(start):
                next(batches)
            state, loader = loader.state_dict(), loaded(fn, 48, workers="processes", shuffle=True, seed=1)
            loader.load_state_dict(state)
        return [batch.tolist() for batch in loader]

    whole = found(1)
    assert found(3) == whole
    assert found(2, 7) == whole[7:]
    drawn = [number for batch in whole for _, *numbers in batch for number in numbers if number >= 0]
    assert len(drawn) == len(set(drawn)) > 0


def test_whole_batches_that_draw_follow_from_their_samples():
    one, two = (
        [batch["x"].tolist() for batch in loaded(int, workers="processes", threads=threads, collate=joins_drawn)]
        for threads in (1, 2)
    )
    assert one == two
    assert len({tuple(batch) for batch in one}) == len(one)


def test_a_function_that_draws_nothing_is_called_once(tmp_path):
    list(loaded(partial(keeps_state, str(tmp_path)), 40, workers="processes"))
    assert sorted(int(path.name.split("-")[0]) for path in tmp_path.iterdir()) == list(range(40))


def test_a_drop_ends_functions_that_do_not_return():
    loader = loaded(ends_slowly, workers="processes")
    batches = iter(loader)
    next(batches)
    time.sleep(0.3)
    start = time.monotonic()
    del batches
    assert time.monotonic() - start < 15
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]


SCRIPT = """
import sys, time
import batchloom as bl
from oracles.samples import ends_slowly

if __name__ == "__main__":
    loader = bl.DataLoader(bl.MapDataset(range(24), ends_slowly, workers="processes"), batch_size=4, num_threads=2)
    batches = iter(loader)
    next(batches)
    print("begun", flush=True)
    try:
        for _ in batches:
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    del batches
"""


def test_ctrl_c_reaches_the_loop(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, tmp_path / "script.py"]
    environment = os.environ | {"PYTHONPATH": paths}
    run = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    time.sleep(0.5)
    os.killpg(run.pid, signal.SIGINT)
    output, _ = run.communicate(timeout=60)
    assert output == "interrupted\n"
    assert run.returncode == 0
