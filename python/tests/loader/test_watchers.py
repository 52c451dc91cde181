"""Integrations that watch a loader may refuse its place or its epoch, and leave it as it was."""

import sys
import types

import batchloom as bl
import numpy
import pytest
from batchloom.errors import LoaderError, StateError
from batchloom.loader import watchers


@pytest.fixture
def watcher(monkeypatch):
    """A module that watches a framework which is imported, and notes what it is told."""
    module = types.ModuleType("watcher")
    module.places, module.lengths, module.error = [], [], None

    def note(found):
        def check(loader, ask):
            found.append(ask())
            if module.error is not None:
                raise module.error()  # a new one, since its traceback holds the loader

        return check

    module.is_over, module.restore = lambda loader, ask: False, lambda loader: None
    module.check_place, module.check_length = note(module.places), note(module.lengths)
    monkeypatch.setitem(sys.modules, "watcher", module)
    monkeypatch.setitem(sys.modules, "framework", types.ModuleType("framework"))
    monkeypatch.setattr(watchers, "WATCHERS", {"framework": "watcher", "absent": "nowhere"})
    return module


def lists(epoch):
    order = numpy.random.default_rng(epoch).permutation(20)
    return [batch.tolist() for batch in numpy.split(order, 10)]


class Sampler:
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(lists(self.epoch))

    def __len__(self):
        return 10


documents = [numpy.full(1 + sample % 7, sample) for sample in range(20)]
KINDS = {
    "rows": lambda: bl.DataLoader(numpy.arange(20), 2, shuffle=True),
    "budget": lambda: bl.DataLoader(bl.SequenceDataset(x=documents), batching=bl.TokenBudget(14, pool=5), shuffle=True),
    "lists": lambda: bl.DataLoader(numpy.arange(20), batch_sampler=Sampler()),
}


def samples(batch):
    return (batch["index"] if isinstance(batch, dict) else batch).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_state_that_is_refused_leaves_the_loader_as_it_was(watcher, kind, steps):
    loader, other = KINDS[kind](), KINDS[kind]()
    batches, before = iter(loader), KINDS[kind]()
    taken = [samples(next(batches)) for _ in range(steps)]
    list(other)
    ahead = iter(other)
    next(ahead)
    state, length, remaining = other.state_dict(), len(other), other.remaining
    place, watcher.error = loader.state_dict(), lambda: StateError("elsewhere")
    with pytest.raises(StateError, match="elsewhere"):
        loader.load_state_dict(state)
    assert watcher.places == [(length, remaining, False)]
    assert loader.state_dict() == place
    watcher.error = None
    assert taken + [samples(batch) for batch in batches] == [samples(batch) for batch in before]


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_that_is_refused_is_not_spent(watcher, kind):
    loader = KINDS[kind]()
    watcher.error = lambda: LoaderError("too long")
    with pytest.raises(LoaderError, match="too long"):
        next(iter(loader))
    watcher.error = None
    found = [samples(batch) for batch in loader]
    assert watcher.lengths == [len(found)] * 2
    assert found == [samples(batch) for batch in KINDS[kind]()]


def test_frameworks_that_are_not_imported_are_not_watched(monkeypatch):
    monkeypatch.setattr(watchers, "WATCHERS", {"absent": "nowhere"})
    assert list(watchers.watchers()) == []
