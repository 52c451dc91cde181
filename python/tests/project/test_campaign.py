"""A share of the campaign, and proof that it notices: a wrong batch, a lost one, and a slope are findings."""

import batchloom as bl
import numpy
import pytest
from campaign import chunk_mixtures, configurations, draws, kinds, samples, soak
from campaign.tally import FindingError, Tally


@pytest.mark.parametrize("seed", range(4))
def test_configurations_are_what_the_oracles_say(seed):
    tally = Tally("configurations", 0)
    configurations.campaign(tally, seed, most=100)
    assert tally.counts["configurations"] == 100
    assert tally.counts["batches"] > 500
    assert tally.counts["resumes"] > 50


@pytest.mark.law("L1")
def test_draws_are_what_their_laws_say():
    tally = Tally("draws", 0)
    draws.campaign(tally, 0, most=60)
    assert tally.counts["draws"] == 60
    assert tally.counts["resumes"] > 60


@pytest.mark.law("L1", "L4", "L5")
def test_mixtures_of_chunks_are_what_their_laws_say():
    tally = Tally("chunk_mixtures", 0)
    chunk_mixtures.campaign(tally, 0, most=40)
    assert tally.counts["runs"] == 40
    assert tally.counts["resumes"] > 40


@pytest.mark.parametrize("broken", ["weights", "state", "chunk"])
def test_a_mixture_of_chunks_that_breaks_a_law_is_a_finding(monkeypatch, broken):
    honest = bl.Mixture.__init__
    if broken == "weights":  # which the mixture names, and does not draw by

        def equal(mixture, sources, weights=None, **options):
            honest(mixture, sources, dict.fromkeys(sources, 1), **options)
            monkeypatch.setattr(bl.Mixture, "weights", property(lambda _: weights))

        monkeypatch.setattr(bl.Mixture, "__init__", equal)
    elif broken == "state":
        monkeypatch.setattr(bl.DataLoader, "load_state_dict", lambda loader, state: loader.set_epoch(state["epoch"]))
    else:
        monkeypatch.setattr(chunk_mixtures.Source, "chunk_of", lambda source, sample: 0)
    with pytest.raises(FindingError, match="repeat it: scripts/campaign --only chunk_mixtures --seed 3 --first"):
        chunk_mixtures.campaign(Tally("chunk_mixtures", 0), 3, most=60)


def test_faults_end_as_they_should(interpreter):
    code = """
        import sys
        from campaign import faults
        from campaign.tally import Tally

        tally = Tally("faults", 0)
        for fault in faults.FAULTS:
            if fault is not faults.processes:
                tally.add(fault.__name__, fault(__import__("random").Random(7)))
        print(tally)
    """
    assert "interrupts" in interpreter(code, timeout=110)


def one_value(batch):
    batch[0][-1] += 1


def the_order(batch):
    batch[0] = batch[0][::-1] + 1


@pytest.mark.parametrize("change", [one_value, the_order])
def test_a_wrong_batch_is_a_finding(monkeypatch, change):
    honest = bl.DataLoader.__iter__

    def changed(loader):
        for batch in honest(loader):
            batch = [numpy.array(part) for part in batch]
            change(batch)
            yield batch

    monkeypatch.setattr(bl.DataLoader, "__iter__", changed)
    monkeypatch.setattr(kinds, "KINDS", (kinds.rows,))
    with pytest.raises(FindingError, match="repeat it: scripts/campaign --only configurations --seed 3 --first"):
        configurations.campaign(Tally("configurations", 0), 3, most=20)


@pytest.mark.parametrize(
    "lost",
    [
        "weights",
        "num_samples",
        "balanced_by",
        "per_class",
        "homogeneous_by",
        "distinct_by",
        "ban",
        "fields",
        "labels",
    ],
)
def test_an_option_without_effect_breaks_a_law(monkeypatch, lost):
    honest = draws.Case.loader

    def without(case, world_size=1, rank=0, **more):
        options = {name: value for name, value in case.options.items() if name != lost}
        more = {name: [] if name == lost else value for name, value in more.items()}
        return honest(draws.Case(case.data, options), world_size, rank, **more)

    monkeypatch.setattr(draws.Case, "loader", without)
    with pytest.raises(FindingError, match="repeat it: scripts/campaign --only draws --seed 3 --first"):
        draws.campaign(Tally("draws", 0), 3, most=300)


def test_a_run_that_begins_anew_breaks_a_law(monkeypatch):
    monkeypatch.setattr(bl.DataLoader, "load_state_dict", lambda loader, state: loader.set_epoch(state["epoch"]))
    with pytest.raises(FindingError):
        draws.campaign(Tally("draws", 0), 3, most=60)


@pytest.mark.parametrize("name", ["source", "mask", "series", "start", "segment_ids", "position_ids", "attention_mask"])
def test_what_a_batch_holds_beside_samples_is_compared(monkeypatch, name):
    honest = samples.Data.named

    def changed(data, batch):
        fields = honest(data, batch)
        return fields | ({name: numpy.asarray(fields[name]) * 0 + 7} if name in fields else {})

    monkeypatch.setattr(samples.Data, "named", changed)
    with pytest.raises(FindingError):
        draws.campaign(Tally("draws", 0), 3, most=60)


def test_a_mixture_of_one_source_breaks_a_law(monkeypatch):
    honest = bl.Mixture.__init__

    def first(mixture, sources, weights, **options):
        honest(mixture, sources, {name: int(place == 0) for place, name in enumerate(sources)}, **options)

    monkeypatch.setattr(bl.Mixture, "__init__", first)
    monkeypatch.setattr(draws, "KINDS", (samples.mixture,))
    monkeypatch.setattr(bl.Mixture, "weights", property(lambda mixture: None))
    with pytest.raises(FindingError):
        draws.campaign(Tally("draws", 0), 3, most=20)


@pytest.mark.parametrize(
    "changed",
    [{"shuffle": False}, {"seed": 12}, {"batch_size": 1}, {"dtype": "float64"}, {"batching": bl.FixedSize(1)}],
    ids=str,
)
def test_other_options_than_the_drawn_ones_are_findings(monkeypatch, changed):
    honest = kinds.Configuration.loader

    def other(configuration, way, world_size=1, rank=0, **more):
        known = {name: value for name, value in changed.items() if name in configuration.options or name == "dtype"}
        if "shard_size" in configuration.options:
            known = {}
        return honest(configuration, way, world_size, rank, **known, **more)

    monkeypatch.setattr(kinds.Configuration, "loader", other)
    monkeypatch.setattr(kinds, "KINDS", (kinds.sequences,) if "batching" in changed else (kinds.rows,))
    with pytest.raises(FindingError):
        configurations.campaign(Tally("configurations", 0), 3, most=60)


def test_a_process_that_dies_is_a_finding(interpreter):
    code = """
        import os, signal
        import pytest
        from campaign import faults

        with pytest.raises(AssertionError, match="ended by signal 11, expected None"):
            faults.forked(lambda draw: os.kill(os.getpid(), signal.SIGSEGV), None)
        with pytest.raises(AssertionError, match="ended by signal None, expected 9"):
            faults.forked(lambda draw: 1, None, ends_by=9)
    """
    interpreter(code)


def test_a_lost_batch_is_a_finding(monkeypatch):
    honest = bl.DataLoader.load_state_dict

    def forgetful(loader, state):
        honest(loader, state)
        batches = iter(loader)
        next(batches, None)

    monkeypatch.setattr(bl.DataLoader, "load_state_dict", forgetful)
    with pytest.raises(FindingError):
        configurations.campaign(Tally("configurations", 0), 3, most=50)


def watched_of(**growing):
    """Return a hundred seconds of a soak that grows as the functions say."""
    start = {"blocks": 10**6, "heap": 10**7, "space": 10**9, "resident": 10**8, "threads": 4, "descriptors": 9}
    assert tuple(start) == soak.NAMES

    def measure(name, second):
        return start[name] + second % 7 * (name == "resident") + growing.get(name, lambda second: 0)(second)

    return [(second, *(measure(name, second) for name in start)) for second in range(100)]


def test_what_grows_is_a_finding():
    tally = Tally("soak", 100)
    soak.judge(tally, watched_of())
    with pytest.raises(FindingError, match=r"'blocks': [1-9]"):
        soak.judge(tally, watched_of(blocks=lambda second: second * 20))
    with pytest.raises(FindingError, match=r"'heap': [1-9]"):
        soak.judge(tally, watched_of(heap=lambda second: second * 5_000))
    with pytest.raises(FindingError, match=r"'space': [1-9]"):
        soak.judge(tally, watched_of(space=lambda second: second * 20_000))
    with pytest.raises(FindingError, match="'descriptors': 1"):
        soak.judge(tally, watched_of(descriptors=lambda second: second // 50))


def test_a_table_that_is_made_larger_once_is_no_finding_but_a_large_step_is():
    tally = Tally("soak", 100)

    def once(second):
        return 4_000_000 * (second > 40)

    soak.judge(tally, watched_of(heap=once, resident=once))
    with pytest.raises(FindingError, match="'resident': 400"):
        soak.judge(tally, watched_of(resident=lambda second: 40_000_000 * (second > 40)))
