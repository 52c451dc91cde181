"""Epochs of a caller beside those of a loader: no call of ``set_epoch`` sends a loader back that was not meant to.

The oracle writes down, for each number that a caller gave, the epoch of the loader that was next, and looks it up.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import batchloom as bl
import numpy
import pytest
from batchloom.loader.epoch_count import KEY
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

SAMPLES, BATCH = 23, 4
STEPS = -(-SAMPLES // BATCH)
PLAN = bl.Plan(SAMPLES, BATCH, shuffle=True, seed=5)
EPOCHS = [[batch.tolist() for batch in PLAN.at_epoch(epoch)] for epoch in range(200)]


def loader() -> Any:
    return bl.DataLoader(bl.TensorDataset(numpy.arange(SAMPLES)), BATCH, shuffle=True, seed=5)


def sampler() -> Any:
    return bl.BatchSampler(SAMPLES, BATCH, shuffle=True, seed=5)


def samples(batch: Any) -> list[int]:
    found: list[int] = batch if isinstance(batch, list) else batch[0].tolist()
    return found


KINDS = pytest.mark.parametrize("make", [loader, sampler])


class Trainer:
    """Counts its own epochs, and tells them: in each, the loader goes round for as many batches as it takes."""

    def __init__(self, ours: Any) -> None:
        self.ours, self.epoch, self.step, self.seen = ours, 0, 0, list[list[int]]()

    def train(self, lengths: list[int], stop: int | None = None) -> None:
        """Train epochs of so many batches each; stop after as many batches in all."""
        for epoch in range(self.epoch, len(lengths)):
            self.epoch = epoch
            self.ours.set_epoch(epoch)
            batches = iter(self.ours)
            while self.step < lengths[epoch]:
                try:
                    batch = next(batches)
                except StopIteration:
                    batches = iter(self.ours)
                    continue
                self.seen.append(samples(batch))
                self.step += 1
                if len(self.seen) == stop:
                    return
            self.step = 0

    def expected(self, lengths: list[int]) -> list[list[int]]:
        """Return what epochs of a number of batches hold: each begins with a pass that no earlier epoch began."""
        found, upcoming = list[list[int]](), 0
        for number, length in enumerate(lengths):
            upcoming = max(number, upcoming)
            for _ in range(-(-length // STEPS)):
                found += EPOCHS[upcoming][: min(length, STEPS)]
                length -= STEPS
                upcoming += 1
        return found


LENGTHS = st.lists(st.integers(1, 3 * STEPS), min_size=1, max_size=4)


@pytest.mark.law("L4")
@KINDS
@given(lengths=LENGTHS, data=st.data())
def test_a_trainer_whose_epochs_are_longer_or_shorter_resumes_at_every_step(
    make: Any, lengths: list[int], data: Any
) -> None:
    whole = Trainer(make())
    whole.train(lengths)
    assert whole.seen == whole.expected(lengths)
    stop = data.draw(st.integers(1, len(whole.seen)))
    first = Trainer(make())
    first.train(lengths, stop)
    second = Trainer(make())
    second.ours.load_state_dict(json.loads(json.dumps(first.ours.state_dict())))
    second.epoch, second.step = first.epoch, first.step
    second.train(lengths)
    assert first.seen + second.seen == whole.seen
    assert second.ours.state_dict() == whole.ours.state_dict()


@KINDS
@given(stop=st.integers(1, 3 * STEPS))
def test_a_trainer_that_counts_anew_after_a_state_was_loaded_goes_on(make: Any, stop: int) -> None:
    """As Accelerate counts: from 0 in each process."""
    first = Trainer(make())
    first.train([STEPS] * 4, stop)
    second = Trainer(make())
    second.ours.load_state_dict(first.ours.state_dict())
    rest = -stop % STEPS
    second.train([rest or STEPS, STEPS])
    assert first.seen + second.seen == Trainer.expected(first, [STEPS] * 6)[: len(first.seen + second.seen)]


@KINDS
def test_a_loop_that_repeats_an_epoch_is_served(make: Any) -> None:
    ours = make()
    for number in (0, 1, 1, 0, 0, 2, 1, 5, 3):
        ours.set_epoch(number)
        assert [samples(batch) for batch in ours] == EPOCHS[number], number
    # Also those that began with another epoch of the loader.
    again = make()
    for number in (0, 1, 0, 1, 1):
        again.set_epoch(number)
        assert [samples(batch) for _ in range(2) for batch in again] == EPOCHS[2 * number] + EPOCHS[2 * number + 1]


@KINDS
def test_calls_between_two_batches_keep_the_place_only_if_nothing_was_taken(make: Any) -> None:
    ours = make()
    ours.set_epoch(3)
    ours.set_epoch(3)
    batches = iter(ours)
    assert samples(next(batches)) == EPOCHS[3][0]
    ours.set_epoch(3)
    assert [samples(batch) for batch in ours] == EPOCHS[3]


@KINDS
def test_a_number_that_cannot_be_reconciled_is_refused_with_both(make: Any) -> None:
    ours = make()
    for number in (0, 2):
        ours.set_epoch(number)
        for _ in range(3):
            list(ours)
    before = ours.state_dict()
    with refused(bl.LoaderError, "set_epoch(1)", "2", "epoch 3"):
        ours.set_epoch(1)
    assert ours.state_dict() == before
    ours.set_epoch(3)
    assert [samples(batch) for batch in ours] == EPOCHS[6]


@KINDS
def test_a_state_holds_the_count_only_where_it_differs(make: Any) -> None:
    ours = make()
    list(ours)
    assert KEY not in ours.state_dict()
    ours.set_epoch(1)
    batches = iter(ours)
    next(batches)
    assert KEY not in ours.state_dict()
    list(batches)
    assert ours.state_dict()[KEY] == [1, 1]
    copy = pickle.loads(pickle.dumps(ours))
    assert copy.state_dict() == ours.state_dict()
    copy.set_epoch(1)
    assert [samples(batch) for batch in copy] == EPOCHS[2]


@KINDS
@pytest.mark.parametrize("count", [3, [1], [1, 2, 3], [1, -1], [True, 1], ["1", 1], [1, 2**64], None])
def test_a_damaged_count_is_refused(make: Any, count: Any) -> None:
    ours = make()
    state = ours.state_dict()
    with refused(bl.StateError, KEY):
        ours.load_state_dict(state | {KEY: count})
    assert ours.state_dict() == state


def test_states_with_a_count_serve_loaders_samplers_and_replays() -> None:
    ours = loader()
    ours.set_epoch(0)
    list(ours)
    batches = iter(ours)
    next(batches)
    state = ours.state_dict()
    assert state[KEY] == [0, 0]
    other = sampler()
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert samples(ours.replay(1, 3, state=state)) == EPOCHS[1][3]


# States of batches that were used


@pytest.mark.law("L4")
@KINDS
@given(taken=st.integers(0, 3 * STEPS), begin=st.integers(0, 2 * STEPS), data=st.data())
def test_a_state_of_batches_that_were_used(make: Any, taken: int, begin: int, data: Any) -> None:
    """It is that of a run which was handed over only those, wherever the run began, digest and all."""

    def at(place: int) -> Any:
        made = make()
        for _ in range(place // STEPS):
            list(made)
        batches = iter(made)
        for _ in range(place % STEPS):
            next(batches)
        return made

    ours = make()
    ours.load_state_dict(at(begin).state_dict())
    place, since = begin, 0
    batches = iter(ours)
    for _ in range(taken):
        try:
            next(batches)
        except StopIteration:
            batches = iter(ours)
            next(batches)
            since = 0
        place, since = place + 1, since + 1
    if data.draw(st.booleans()):
        for _ in batches:
            place, since = place + 1, since + 1
    back = data.draw(st.integers(0, since))
    expected = at(place - back).state_dict()
    assert ours.state_dict(batches=since - back) == expected
    if back:
        assert ours.state_dict(batches=-back) == expected
    for wrong in (since + 1, -since - 1):
        with refused(bl.ArgumentError, "batches", str(wrong)):
            ours.state_dict(batches=wrong)


@given(steps=st.integers(1, 20))
def test_a_loop_that_fetches_ahead_loses_nothing(steps: int) -> None:
    def train(ours: Any, seen: list[list[int]]) -> Any:
        batches = ours.steps()
        held = next(batches)
        state = None
        for _ in range(steps):
            ahead = next(batches)
            seen.append(samples(held))
            held = ahead
            state = ours.state_dict(batches=-1)
        return state

    ours, seen = loader(), list[list[int]]()
    for _ in range(3):
        state = train(ours, seen)
        ours = loader()
        ours.load_state_dict(state)
    assert seen == [batch for epoch in EPOCHS for batch in epoch][: 3 * steps]


def test_epochs_that_were_left_alone_are_no_count_of_a_caller():
    loader = bl.DataLoader(numpy.arange(12), 4, shuffle=True)
    loader.set_epoch(0)
    for _ in range(4):
        list(loader)
    loader.set_epoch(1)
    for epoch, batches in loader.epochs(6):
        if epoch != 5:
            list(batches)
    assert loader.epoch == 6
    loader.set_epoch(2)
    assert loader.epoch == 6
