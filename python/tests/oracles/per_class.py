"""Batches of several classes with several samples of each: what they have to hold, counted draw by draw."""

from collections import Counter

from oracles.batching import flat, pieces


def require_even(things, among):
    """Check that each of ``among`` occurs equally often in ``things``, to one."""
    times = Counter(things)
    assert set(times) <= set(among)
    found = [times[thing] for thing in among]
    assert max(found) - min(found) <= 1, (things, among)


def require_classes(epochs, classes, per_class, batch_size):
    """Check the batches of the first epochs of a run, given as lists of samples, by the class of each sample.

    A batch has turns of classes, evenly. A turn has samples of one class, evenly. Over all epochs, each class has a
    turn before any has another, and gives all of its samples before it repeats one.
    """
    among = sorted(set(classes))
    members = {one: [sample for sample, other in enumerate(classes) if other == one] for one in among}
    turns, drawn = [], {one: [] for one in among}
    for batch in flat(epochs):
        assert len(batch) == batch_size
        held = []
        for turn in pieces(batch, per_class):
            (one,) = {classes[sample] for sample in turn}
            require_even(turn, members[one])
            drawn[one] += turn
            held.append(one)
        require_even(held, among)
        turns += held
    for rounds in pieces(turns, len(among)):
        require_even(rounds, among)
    for one, samples in drawn.items():
        for passed in pieces(samples, len(members[one])):
            require_even(passed, members[one])
