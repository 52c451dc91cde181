"""Draws from the generators of a process are told, whichever generator they come from, and nothing else is."""

import random

import numpy
import pytest
import torch
from batchloom.dataset.map.seeded_generators import SeededGenerators

DRAWS = [
    random.random,
    lambda: random.gauss(0, 1),
    numpy.random.random,
    numpy.random.standard_normal,
    lambda: numpy.random.random(624),
    lambda: torch.rand(()),
    lambda: torch.randn(16),
]
BITS = [numpy.random.MT19937, numpy.random.PCG64]


@pytest.fixture(autouse=True, params=BITS, ids=lambda kind: kind.__name__)
def bits(request):
    """Generators of this process, among them one of NumPy with these bits, as they were once the test has ended."""
    python, before, of_torch = random.getstate(), numpy.random.get_bit_generator(), torch.get_rng_state()
    numpy.random.set_bit_generator(request.param())
    yield
    numpy.random.set_bit_generator(before)
    random.setstate(python)
    torch.set_rng_state(of_torch)


class Samples:
    """The answer to a request whose samples draw; `calls` counts how often it was asked for."""

    def __init__(self, draw):
        self.draw, self.calls = draw, 0

    def __call__(self):
        self.calls += 1
        return self.draw()


def rests():
    return None


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("requests", [0, 1, 3])
def test_samples_that_draw_are_read_again(draw, requests):
    generators = SeededGenerators()
    for _ in range(requests):
        calm = Samples(rests)
        generators.request(calm)
        assert (calm.calls, generators.are_drawn) == (1, False)
    drawn = Samples(draw)
    generators.request(drawn)
    assert (drawn.calls, generators.are_drawn) == (2, True)


@pytest.mark.parametrize("draw", DRAWS)
def test_slots_that_were_filled_between_requests_change_nothing(draw):
    generators = SeededGenerators()
    generators.request(rests)
    generators.seed(1, 2, 3)
    draw()
    calm = Samples(rests)
    generators.request(calm)
    assert (calm.calls, generators.are_drawn) == (1, False)


def test_numbers_of_a_state_that_is_restored_are_the_same_for_each_request():
    def restored():
        python, bits, of_torch = random.getstate(), numpy.random.get_bit_generator().state, torch.get_rng_state()
        numbers = random.random(), float(numpy.random.random()), float(torch.rand(()))
        random.setstate(python)
        numpy.random.get_bit_generator().state = bits
        torch.set_rng_state(of_torch)
        return numbers

    generators = SeededGenerators()
    assert len({generators.request(restored) for _ in range(3)}) == 1
    assert not generators.are_drawn
