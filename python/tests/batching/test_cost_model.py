"""Cost models that are not measured: the default, the operations of a transformer, and the cost of concatenations."""

from fractions import Fraction

import batchloom as bl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

coefficients = st.floats(1e-9, 1e6, allow_subnormal=False)
widths = st.integers(1, 1 << 14)


def operations(hidden, layers, inner, matrices, heads, kv_heads, head_dim, experts, vocabulary):
    """The multiplications and additions of each matrix, one after the other."""
    per_layer = 0
    for columns in (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim, heads * head_dim):
        per_layer += 2 * hidden * columns
    for _ in range(experts):
        for _ in range(matrices):
            per_layer += 2 * hidden * inner
    scores, sums = 2 * heads * head_dim, 2 * heads * head_dim
    return layers * per_layer + 2 * hidden * vocabulary, layers * (scores + sums)


def test_by_default_attention_is_half_of_the_cost_at_24_576_tokens():
    model = bl.CostModel.default()
    assert model == bl.CostModel(per_token=1, per_pair=1 / 24_576)
    assert model.packed_cost(24_576, 24_576**2) == 2 * 24_576
    seven = bl.CostModel.of(hidden_size=4096, layers=32)
    assert seven.per_token / seven.per_pair == 24_576


@given(widths, st.integers(1, 99), widths, st.booleans(), st.integers(1, 32), st.integers(1, 8), widths, st.data())
def test_operations_are_counted_matrix_by_matrix(hidden, layers, inner, gated, kv_heads, times, head_dim, data):
    experts, vocabulary = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 1 << 18))
    heads = kv_heads * times
    shape = {
        "hidden_size": hidden,
        "layers": layers,
        "intermediate_size": inner,
        "gated": gated,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "experts_per_token": experts,
        "vocab_size": vocabulary,
    }
    counted = operations(hidden, layers, inner, 3 if gated else 2, heads, kv_heads, head_dim, experts, vocabulary)
    model = bl.CostModel.of(**shape)
    assert (model.fixed, model.per_token, model.per_pair) == (0, pytest.approx(counted[0]), pytest.approx(counted[1]))
    causal = bl.CostModel.of(**shape, causal=True)
    assert (causal.per_token, causal.per_pair) == (model.per_token, model.per_pair / 2)


def test_shapes_have_defaults():
    plain = bl.CostModel.of(hidden_size=64, layers=3)
    assert plain == bl.CostModel.of(
        hidden_size=64, layers=3, intermediate_size=256, heads=4, kv_heads=4, head_dim=16, vocab_size=0
    )
    assert plain.per_token == 3 * (4 * 2 * 64 * 64 + 2 * 2 * 64 * 256)
    assert plain.per_pair == 3 * 4 * 64


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"hidden_size": 0}, ("hidden_size", "0", "1")),
        ({"layers": 0}, ("layers", "0", "1")),
        ({"layers": 2.0}, ("layers", "2.0", "integer")),
        ({"intermediate_size": 0}, ("intermediate_size", "0", "1")),
        ({"heads": 0}, ("heads", "0", "1")),
        ({"heads": 6, "kv_heads": 4}, ("heads", "6", "kv_heads", "4")),
        ({"kv_heads": 2}, ("heads", "1", "kv_heads", "2")),
        ({"head_dim": -1}, ("head_dim", "-1")),
        ({"experts_per_token": 0}, ("experts_per_token", "0", "1")),
        ({"vocab_size": -1}, ("vocab_size", "-1", "0")),
        ({"gated": 2}, ("gated", "2")),
        ({"causal": "no"}, ("causal", "'no'")),
    ],
    ids=str,
)
def test_shapes_of_no_transformer(given, values):
    with refused(bl.ArgumentError, *values):
        bl.CostModel.of(**{"hidden_size": 64, "layers": 2} | given)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50), coefficients, coefficients, coefficients, st.integers(0, 50))
def test_concatenations_cost_by_two_sums(lengths, fixed, per_token, per_pair, turn):
    model = bl.CostModel(fixed, per_token, per_pair)
    cost = model.packed_cost(sum(lengths), sum(length**2 for length in lengths))
    exact = Fraction(fixed) + sum(Fraction(per_token) * length + Fraction(per_pair) * length**2 for length in lengths)
    assert cost == pytest.approx(float(exact), rel=1e-14)
    lengths = lengths[turn:] + lengths[:turn]
    assert model.packed_cost(sum(lengths), sum(length**2 for length in lengths)) == cost
    if len(set(lengths)) == 1:
        # Samples of one length need no padding.
        assert model.cost(len(lengths), lengths[0]) == pytest.approx(cost, rel=1e-14)
