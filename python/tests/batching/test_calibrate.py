"""Cost models of steps, by a clock that the tests turn themselves."""

import importlib
import itertools
import math
import pickle
import types

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy.optimize import nnls

SHAPES = [(1, 8), (4, 8), (16, 8), (1, 64), (4, 64), (16, 64), (1, 512), (4, 512), (2, 2000)]


class Clock:
    """A clock that only a step moves."""

    def __init__(self, cost, noise=()):
        self.cost, self.now, self.calls = cost, 0.0, []
        self.noise = itertools.cycle(noise or [1])

    def perf_counter(self):
        return self.now

    def step(self, samples, length):
        self.calls.append((samples, length))
        self.now += self.cost(samples, length) * next(self.noise)


def installed(clock, patch):
    patch.setattr(
        importlib.import_module("batchloom.batching.calibrate"),
        "time",
        types.SimpleNamespace(perf_counter=clock.perf_counter),
    )
    return clock


@pytest.fixture
def turned(monkeypatch):
    return lambda cost, noise=(): installed(Clock(cost, noise), monkeypatch)


def coefficients(model):
    return model.fixed, model.per_token, model.per_pair


def by(fixed, per_token, per_pair):
    return lambda samples, length: fixed + per_token * samples * length + per_pair * samples * length**2


@pytest.mark.parametrize(
    "known",
    [(1e-3, 2e-6, 3e-9), (0, 1e-5, 0), (1e-2, 0, 0), (0, 0, 1e-8), (0, 1e-7, 1e-9), (5, 0, 1e-7), (1e-7, 1e-9, 1e-12)],
    ids=str,
)
@pytest.mark.parametrize("shapes", [SHAPES, None], ids=["given", "default"])
def test_what_a_step_costs_is_found(turned, known, shapes):
    clock = turned(by(*known))
    model = bl.calibrate(clock.step, shapes=shapes)
    assert all(type(number) is float and number >= 0 and math.isfinite(number) for number in coefficients(model))
    for found, number in zip(coefficients(model), known, strict=True):
        # What a shape of its size costs by it, against what the whole costs.
        assert found == pytest.approx(number, rel=1e-6, abs=1e-9 * max(known))
    assert model.fit.error < 1e-6
    assert model.fit.worst < 1e-6
    for samples, length in [(3, 100), (100, 3), (7, 3000)]:
        assert model.cost(samples, length) == pytest.approx(clock.cost(samples, length), rel=1e-5)


@given(
    fixed=st.floats(0, 1),
    per_token=st.floats(0, 1e-3),
    per_pair=st.floats(0, 1e-6),
    shapes=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 2000)), min_size=3, max_size=20, unique=True),
)
def test_any_model_is_found_again(fixed, per_token, per_pair, shapes):
    cost = by(fixed + 1e-6, per_token, per_pair)
    with pytest.MonkeyPatch.context() as patch:
        clock = installed(Clock(cost), patch)
        model = bl.calibrate(clock.step, shapes=shapes)
    assert model.fit.worst < 1e-5
    assert all(number >= 0 for number in coefficients(model))
    assert model.fit.shapes == tuple(shapes)
    assert model.fit.seconds == pytest.approx([cost(*shape) for shape in shapes], rel=1e-5, abs=1e-12)


@pytest.mark.filterwarnings("ignore:the cost model fits poorly")
@given(
    seconds=st.lists(st.floats(1e-6, 10), min_size=4, max_size=10),
    data=st.data(),
)
def test_no_coefficients_fit_better(seconds, data):
    """Non-negative least squares of the relative errors, by another's solver."""
    count = len(seconds)
    shapes = data.draw(
        st.lists(st.tuples(st.integers(1, 99), st.integers(1, 999)), min_size=count, max_size=count, unique=True)
    )
    table = dict(zip(shapes, seconds, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        clock = installed(Clock(lambda *shape: table[shape]), patch)
        model = bl.calibrate(clock.step, shapes=shapes)
    assert all(number >= 0 for number in coefficients(model))
    rows = numpy.array([[1, samples * length, samples * length**2] for samples, length in shapes], float)
    rows /= numpy.array(model.fit.seconds)[:, None]
    scale = rows.max(axis=0)
    _, distance = nnls(rows / scale, numpy.ones(count))
    found = numpy.linalg.norm(rows @ numpy.array(coefficients(model)) - 1)
    assert found <= distance * (1 + 1e-6) + 1e-9
    errors = [abs(said / found - 1) for said, found in zip(model.fit.predicted, model.fit.seconds, strict=True)]
    assert model.fit.worst == pytest.approx(max(errors))
    assert model.fit.error == pytest.approx(float(numpy.median(errors)))


def test_costs_that_fall_with_length_have_no_negative_coefficients(turned):
    with pytest.warns(UserWarning, match="cost model"):
        model = bl.calibrate(turned(lambda samples, length: 1 / length).step, shapes=SHAPES)
    assert all(number >= 0 for number in coefficients(model))
    assert any(coefficients(model))


def test_a_poor_fit_is_said_and_a_good_one_is_not(turned):
    steep = turned(lambda samples, length: 1e-9 * 4 ** (samples % 3) * length**3)
    with pytest.warns(UserWarning, match=r"cost model\b.* median\b.* \d+%.* \d+%") as caught:
        model = bl.calibrate(steep.step, shapes=SHAPES)
    assert caught[0].filename == __file__
    assert model.fit.error > 0.2
    assert model.fit.worst >= model.fit.error
    text = str(model.fit)
    assert all(f"{samples} x {length}" in text for samples, length in SHAPES)
    assert "median error" in text
    # A step that is 10 % off here and there is no reason to warn; warnings are errors in these tests.
    fair = turned(lambda samples, length: by(1e-3, 1e-6, 1e-9)(samples, length) * (1.1 if samples == 4 else 1))
    assert bl.calibrate(fair.step, shapes=SHAPES).fit.error < 0.2


def test_a_hiccup_now_and_then_does_not_count(turned):
    clock = turned(by(1e-3, 2e-6, 3e-9), noise=[1, 1, 1, 50, 1])
    model = bl.calibrate(clock.step, shapes=SHAPES)
    assert coefficients(model) == pytest.approx((1e-3, 2e-6, 3e-9), rel=1e-6)


def test_a_machine_that_is_slow_for_a_while_does_not_count(turned):
    clock = turned(by(1e-3, 2e-6, 3e-9))
    usual = clock.cost
    clock.cost = lambda *shape: usual(*shape) * (1 + len(clock.calls) // 12 % 3)
    model = bl.calibrate(clock.step, shapes=SHAPES)
    assert coefficients(model) == pytest.approx((1e-3, 2e-6, 3e-9), rel=1e-6)


def test_the_first_run_of_a_shape_warms_up(turned):
    seen = set()

    def cost(samples, length):
        first = (samples, length) not in seen
        seen.add((samples, length))
        return by(1e-3, 2e-6, 3e-9)(samples, length) * (1000 if first else 1)

    model = bl.calibrate(turned(cost).step, shapes=SHAPES)
    assert coefficients(model) == pytest.approx((1e-3, 2e-6, 3e-9), rel=1e-6)


def test_how_often_a_step_is_run(turned):
    for seconds, least, most in ((1e-6, 6, 30), (10.0, 6, 6)):
        clock = turned(lambda samples, length, seconds=seconds: seconds)
        bl.calibrate(clock.step, shapes=SHAPES)
        counts = {shape: clock.calls.count(shape) for shape in SHAPES}
        assert all(least <= count <= most for count in counts.values())
        assert all(type(number) is int for shape in clock.calls for number in shape)
        # Shapes take turns, so a machine that is slower for a while is so for all of them.
        turns = [clock.calls[start : start + len(SHAPES)] for start in range(0, 6 * len(SHAPES), len(SHAPES))]
        assert turns == [SHAPES] * 6


def test_default_shapes_are_a_spread_of_some_size(turned):
    clock = turned(by(1e-3, 1e-6, 1e-9))
    bl.calibrate(clock.step)
    shapes = set(clock.calls)
    assert len(shapes) > 10
    assert max(samples * length for samples, length in shapes) <= 16_384
    assert len({samples for samples, _ in shapes}) > 3
    assert len({length for _, length in shapes}) > 3


@pytest.mark.parametrize(
    "shapes",
    [
        iter(SHAPES),
        numpy.array(SHAPES),
        torch.tensor(SHAPES),
        [[numpy.int64(samples), torch.tensor(length)] for samples, length in SHAPES],
        [(3, 8), (3, 16), (3, 32)],
        [(1, 2), (2, 3), (3, 4)],
    ],
    ids=lambda shapes: type(shapes).__name__,
)
def test_shapes_of_any_kind(turned, shapes):
    model = bl.calibrate(turned(by(1e-3, 2e-6, 3e-9)).step, shapes=shapes)
    assert model.fit.worst < 1e-6


def test_a_clock_too_coarse_for_the_step(turned):
    model = bl.calibrate(turned(lambda samples, length: 0.0).step, shapes=SHAPES)
    assert coefficients(model) == pytest.approx((1e-9, 0, 0), abs=1e-15)


def test_the_model_makes_a_rule(turned):
    model = bl.calibrate(turned(by(1e-3, 2e-6, 3e-9)).step, shapes=SHAPES)
    rule = bl.CostOptimal(model, max_tokens=4096)
    sizes = [size * 7 % 301 for size in range(500)]
    plan = bl.Plan(sizes=sizes, batching=rule)
    assert plan.stats()["real"] == sum(sizes)
    travelled = pickle.loads(pickle.dumps(rule))
    assert travelled == rule
    assert travelled.cost.fit == model.fit
    # How it was found does not tell rules apart.
    same = bl.CostOptimal(bl.CostModel(*coefficients(model)), max_tokens=4096)
    assert same == rule
    assert hash(same) == hash(rule)
    assert bl.Plan(sizes=sizes, batching=same) == plan
    assert "fit" not in repr(model)


def test_the_clock_waits_for_the_device(monkeypatch):
    """A step that only asks for work, which is done when somebody waits."""
    clock = installed(Clock(by(1e-3, 2e-6, 3e-9)), monkeypatch)
    asked, devices = [], []

    def wait(device):
        devices.append(device)
        while asked:
            Clock.step(clock, *asked.pop())

    monkeypatch.setattr(torch.accelerator, "synchronize", wait)
    for device in ("cuda", torch.device("cuda", 1)):
        model = bl.calibrate(lambda *shape: asked.append(shape), shapes=SHAPES, device=device)
        assert coefficients(model) == pytest.approx((1e-3, 2e-6, 3e-9), rel=1e-6)
        assert set(map(str, devices)) == {str(device)}
        devices.clear()
    for device in (None, "cpu", torch.device("cpu")):
        bl.calibrate(clock.step, shapes=SHAPES, device=device)
    assert devices == []


def test_a_device_without_torch(interpreter):
    interpreter(
        """
        import batchloom as bl

        shapes = [(1, 1), (2, 99), (9, 999)]
        model = bl.calibrate(lambda samples, length: sum(range(samples * length)), shapes=shapes, device="cpu")
        try:
            bl.calibrate(lambda samples, length: None, device="cuda")
        except bl.ArgumentError as error:
            assert "cuda" in str(error) and "torch" in str(error), error
        else:
            raise AssertionError
        """
    )


def test_an_error_of_the_step_is_the_users_own(turned):
    def step(samples, length):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bl.calibrate(step)


@pytest.mark.filterwarnings("ignore:the cost model fits poorly")
def test_a_real_step_on_the_real_clock():
    model = bl.calibrate(lambda samples, length: torch.zeros(samples, length).sum(), shapes=[(1, 8), (8, 8), (8, 64)])
    assert all(number >= 0 and math.isfinite(number) for number in coefficients(model))
    assert all(second > 0 for second in model.fit.seconds)


@pytest.mark.parametrize(
    ("shapes", "values"),
    [
        ([], ("0", "shapes")),
        ([(1, 2)], ("1", "shapes", "3")),
        ([(1, 2)] * 9, ("1", "shapes")),
        ([(1, 2), (2, 1), (1, 2)], ("2", "shapes")),
        ([(0, 1), (1, 1), (2, 2)], ("samples", "0", "1")),
        ([(1, 0), (1, 1), (2, 2)], ("length", "0", "1")),
        ([(-3, 1), (1, 1), (2, 2)], ("samples", "-3")),
        ([(1.5, 1), (1, 1), (2, 2)], ("samples", "1.5", "integer")),
        ([(1, 1.0), (1, 1), (2, 2)], ("length", "1.0", "integer")),
        ([(True, 1), (1, 1), (2, 2)], ("samples", "True")),
        ([("1", 1), (1, 1), (2, 2)], ("samples", "'1'")),
        ([(None, 1), (1, 1), (2, 2)], ("samples", "None")),
        ([(float("nan"), 1), (1, 1), (2, 2)], ("samples", "nan")),
        ([(2**70, 1), (1, 1), (2, 2)], ("samples", str(2**70))),
    ],
    ids=str,
)
def test_shapes_that_are_none(shapes, values):
    ran = []
    with refused(bl.ArgumentError, *values):
        bl.calibrate(lambda *shape: ran.append(shape), shapes=shapes)
    assert ran == []


@pytest.mark.parametrize(
    "shapes", [5, "abc", [1, 2, 3], [(1,)] * 3, [(1, 2, 3)] * 3, [None] * 3, 2.5, [[[1, 2]]] * 3], ids=str
)
def test_shapes_that_are_no_pairs(shapes):
    with refused(bl.ArgumentError, "shapes"):
        bl.calibrate(lambda samples, length: None, shapes=shapes)


@pytest.mark.parametrize("device", ["foo", "cuda:x"])
def test_devices_that_are_none(device):
    ran = []
    with refused(bl.Error, device):
        bl.calibrate(lambda *shape: ran.append(shape), shapes=SHAPES, device=device)
    assert ran == []


@pytest.mark.parametrize("step", [None, 5, "step"])
def test_steps_that_are_none(step):
    with refused(bl.ArgumentError, "step"):
        bl.calibrate(step)


# The model itself


@pytest.mark.parametrize("name", ["fixed", "per_token", "per_pair"])
@pytest.mark.parametrize(
    "value", [-1, -1e-300, float("nan"), float("inf"), -float("inf"), "1", None, True, False, [1], 1j, b"1"], ids=repr
)
def test_coefficients_that_are_none(name, value):
    with refused(bl.ArgumentError, name, repr(value)):
        bl.CostModel(**{"fixed": 1.0, name: value})


def test_an_integer_larger_than_numbers():
    with refused(bl.ArgumentError, "fixed"):
        bl.CostModel(fixed=10**400)


@pytest.mark.parametrize("number", [numpy.float32(2), numpy.int64(2), numpy.float16(2)])
def test_numbers_of_numpy_are_numbers(number):
    assert bl.CostModel(fixed=number) == bl.CostModel(fixed=2)


def test_a_model_of_nothing():
    with refused(bl.ArgumentError, "fixed", "per_token", "per_pair", "0"):
        bl.CostModel()
    with refused(bl.ArgumentError, "fixed", "per_token", "per_pair", "0"):
        bl.CostModel(0, 0.0, -0.0)


def test_models_are_values():
    model = bl.CostModel(1, 2, 3)
    assert model == bl.CostModel(fixed=1.0, per_token=2.0, per_pair=3.0)
    assert hash(model) == hash(bl.CostModel(1.0, 2.0, 3.0))
    assert model != bl.CostModel(1, 2, 4)
    assert repr(model) == "CostModel(fixed=1.0, per_token=2.0, per_pair=3.0)"
    assert coefficients(pickle.loads(pickle.dumps(model))) == (1.0, 2.0, 3.0)
    assert model.cost(2, 10) == 1 + 2 * 20 + 3 * 200
    assert model.fit is None
    with pytest.raises(AttributeError):
        model.fixed = 5


@pytest.mark.parametrize("shapes", [[(1, 8), (4, 8), (16, 8)], [(2, 8), (2, 8), (2, 16), (2, 16)]])
def test_shapes_that_cannot_tell_the_coefficients_apart(shapes):
    with refused(bl.ArgumentError, "shapes"):
        bl.calibrate(lambda samples, length: None, shapes)
