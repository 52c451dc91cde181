"""Packed batches: what they hold, that what tells segments apart agrees, and that models see no difference."""

import itertools
from collections import defaultdict

import batchloom as bl
import numpy
import pytest
import tokenizers
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import flat, packings, sized
from torch import nn
from torch.nn import functional

SIZES = [3, 1, 7, 2, 12, 5, 1, 9, 4, 4, 11, 6]


def documents(sizes=SIZES, vocabulary=50, seed=0):
    random = numpy.random.default_rng(seed)
    return [random.integers(1, vocabulary, size) for size in sizes]


def segments(batch, name="x"):
    """The rows of each segment."""
    values = numpy.asarray(batch[name])
    return [values[start:end] for start, end in itertools.pairwise(numpy.asarray(batch["cu_seqlens"]).tolist())]


def assert_agrees(batch, rule):
    """Everything that tells segments apart says the same thing, each in its own way."""
    ends, positions, numbers = (numpy.asarray(batch[name]) for name in ("cu_seqlens", "position_ids", "segment_ids"))
    assert (ends.dtype, positions.dtype, numbers.dtype) == (numpy.int32, numpy.int64, numpy.int32)
    assert ends[0] == 0
    assert ends[-1] == len(batch["x"]) == len(positions) == len(numbers) <= rule.max_tokens
    lengths = numpy.diff(ends)
    assert (lengths >= 0).all()
    assert len(lengths) == len(batch["index"]) > 0
    assert type(batch["max_seqlen"]) is int
    assert batch["max_seqlen"] == lengths.max()
    assert positions.tolist() == flat(range(length) for length in lengths)
    assert numbers.tolist() == flat([number] * length for number, length in enumerate(lengths, 1))


@pytest.mark.law("L8")
@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(size=90),
    rule=packings,
    shuffle=st.booleans(),
    labels=st.booleans(),
    inner=st.sampled_from([(), (3,), (2, 1)]),
    seed=st.integers(0, 99),
)
def test_packs_are_what_the_plan_says_and_nothing_is_lost(sizes, rule, shuffle, labels, inner, seed):
    assume(batching.refused(rule, sizes) is None)
    assume(rule.oversize != "drop" or not all(batching.too_large(rule, size) for size in sizes))
    total = sum(sizes)
    values = numpy.arange(total * int(numpy.prod(inner))).reshape(total, *inner)
    samples = numpy.split(values, numpy.cumsum(sizes)[:-1])
    dataset = bl.SequenceDataset(x=(values, numpy.cumsum([0, *sizes])), label=numpy.arange(len(sizes)) * 2)
    labels = labels and not inner
    loader = bl.DataLoader(
        dataset, batching=rule, shuffle=shuffle, seed=seed, labels="x" if labels else None, num_threads=1
    )
    plan = loader.plan()
    found = defaultdict(list)
    delivered = 0
    for step, batch in enumerate(loader):
        assert_agrees(batch, rule)
        assert batch["index"].tolist() == plan[step].tolist()
        assert batch["label"].tolist() == [2 * sample for sample in plan[step]]
        assert batch["x"].shape == (plan.step(step).tokens, *inner)
        assert batch["x"].dtype == values.dtype
        assert len(batch["index"]) <= (rule.max_samples or len(sizes) * 90)
        for sample, segment in zip(batch["index"].tolist(), segments(batch), strict=True):
            found[sample].append(segment)
        if labels:
            assert batch["labels"].dtype == numpy.int64
            expected = [[*segment[1:].tolist(), -100][: len(segment)] for segment in segments(batch)]
            assert batch["labels"].tolist() == flat(expected)
        delivered += len(batch["x"])
    stats = plan.stats()
    assert (stats["real"], stats["padded"]) == (delivered, delivered)
    assert stats["efficiency"] == pytest.approx(delivered / max(len(plan) * rule.max_tokens, 1))
    large = [size for size in sizes if batching.too_large(rule, size)]
    lost = large if rule.oversize == "drop" else []
    assert sorted(found) == [sample for sample, size in enumerate(sizes) if size not in lost]
    for sample, parts in found.items():
        parts.sort(key=lambda part: part.reshape(-1)[0] if part.size else 0)
        assert [len(part) for part in parts] == batching.parts(rule, sizes[sample])
        kept = batching.taken(rule, sizes[sample])
        assert numpy.array_equal(numpy.concatenate(parts), samples[sample][:kept])
    assert (stats["dropped"], stats["dropped_tokens"]) == (len(lost), sum(lost))
    assert stats["truncated_tokens"] == total - sum(lost) - delivered
    assert stats["split"] == sum(len(parts) > 1 for parts in found.values())


def test_segments_of_a_batch_come_longest_first():
    sizes = [place * 7 % 41 for place in range(300)]
    for oversize in ("truncate", "split"):
        loader = bl.DataLoader(batching.dataset(sizes), batching=bl.Packing(30, oversize=oversize), shuffle=True)
        for batch in loader:
            lengths = numpy.diff(batch["cu_seqlens"]).tolist()
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] == batch["max_seqlen"]


def test_empty_sequences_have_empty_segments():
    dataset = bl.SequenceDataset(x=[[], [4, 5], [], [6]], y=numpy.arange(4))
    (batch,) = bl.DataLoader(dataset, batching=bl.Packing(8), labels="x")
    assert batch["index"].tolist() == batch["y"].tolist() == [1, 3, 0, 2]
    assert batch["cu_seqlens"].tolist() == [0, 2, 3, 3, 3]
    assert batch["segment_ids"].tolist() == [1, 1, 2]
    assert batch["position_ids"].tolist() == [0, 1, 0]
    assert batch["labels"].tolist() == [5, -100, -100]
    assert batch["max_seqlen"] == 2
    (batch,) = bl.DataLoader(bl.SequenceDataset(x=[[], []]), batching=bl.Packing(8), labels="x")
    assert (batch["cu_seqlens"].tolist(), batch["max_seqlen"], batch["x"].shape) == ([0, 0, 0], 0, (0,))
    assert batch["labels"].shape == batch["position_ids"].shape == batch["segment_ids"].shape == (0,)


def test_parts_of_a_split_sample_are_segments_of_their_own():
    dataset = bl.SequenceDataset(x=[numpy.arange(10), numpy.arange(100, 103)], y=numpy.array([7.5, 8.5]))
    batches = list(bl.DataLoader(dataset, batching=bl.Packing(4, oversize="split"), labels="x"))
    found = [(b["index"].tolist(), b["x"].tolist(), b["labels"].tolist(), b["position_ids"].tolist()) for b in batches]
    assert sorted(found) == [
        ([0], [0, 1, 2, 3], [1, 2, 3, -100], [0, 1, 2, 3]),
        ([0], [4, 5, 6, 7], [5, 6, 7, -100], [0, 1, 2, 3]),
        ([0], [8, 9], [9, -100], [0, 1]),
        ([1], [100, 101, 102], [101, 102, -100], [0, 1, 2]),
    ]
    assert all(batch["y"].tolist() == [7.5 + sample for sample in batch["index"]] for batch in batches)
    # A truncated one ends where it is cut: the token after that is nobody's label.
    batches = bl.DataLoader(dataset, batching=bl.Packing(4, oversize="truncate"), labels="x")
    assert [batch["labels"].tolist() for batch in batches] == [[1, 2, 3, -100], [101, 102, -100]]


def test_what_a_pack_holds_and_in_which_order():
    dataset = bl.SequenceDataset(x=[[1, 2], [3]], y=numpy.zeros((2, 3)), z=[numpy.zeros((2, 4)), numpy.zeros((1, 4))])
    (batch,) = bl.DataLoader(dataset, batching=bl.Packing(5), labels="x")
    assert list(batch) == [
        "x", "y", "z", "cu_seqlens", "max_seqlen", "position_ids", "segment_ids", "index", "labels",
    ]  # fmt: skip
    assert {name: value.shape for name, value in batch.items() if name != "max_seqlen"} == {
        "x": (3,),
        "y": (2, 3),
        "z": (3, 4),
        "cu_seqlens": (3,),
        "position_ids": (3,),
        "segment_ids": (3,),
        "index": (2,),
        "labels": (3,),
    }


@pytest.mark.parametrize("output", ["torch", "numpy", "jax"])
def test_packs_in_every_framework(output):
    loader = bl.DataLoader(batching.dataset(SIZES), batching=bl.Packing(16), output=output, labels="x")
    expected = list(bl.DataLoader(batching.dataset(SIZES), batching=bl.Packing(16), labels="x"))
    for found, batch in zip(loader, expected, strict=True):
        assert type(found["max_seqlen"]) is int
        assert all(numpy.array_equal(found[name], value) for name, value in batch.items())
        assert str(found["cu_seqlens"].dtype).removeprefix("torch.") == "int32"


def test_a_pack_of_many_and_of_long_segments():
    sizes = [1] * 70_000 + [2**20, 2**20 - 5]
    for batch in bl.DataLoader(batching.dataset(sizes), batching=bl.Packing(2**20 + 70_000), labels="x"):
        assert_agrees(batch, bl.Packing(2**20 + 70_000))


def test_boundaries_make_jagged_tensors():
    samples = [torch.randn(size, 4) for size in SIZES]
    for batch in bl.DataLoader(bl.SequenceDataset(x=samples), batching=bl.Packing(20)):
        jagged = torch.nested.nested_tensor_from_jagged(batch["x"], offsets=batch["cu_seqlens"].long())
        for sample, part in zip(batch["index"].tolist(), jagged.unbind(), strict=True):
            assert torch.equal(part, samples[sample])


# Models see no difference


class Transformer(nn.Module):
    """Two layers of attention, causal or not, that see what a mask lets them see."""

    def __init__(self, causal, vocabulary=50, width=16, heads=2, layers=2):
        super().__init__()
        self.causal, self.heads = causal, heads
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.attend = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.think = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, positions, mask):
        """``tokens`` [rows, length]; ``mask`` [rows, length, length]: whether one sees another."""
        x = self.tokens(tokens) + self.positions(positions)
        if self.causal:
            mask = mask & torch.ones(mask.shape[-2:], dtype=torch.bool).tril()
        # Padding sees itself, or it would see nothing, which is no number.
        mask = mask | torch.eye(mask.shape[-1], dtype=torch.bool)
        for attend, think in zip(self.attend, self.think, strict=True):
            q, k, v = attend(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
            x = x + seen.transpose(1, 2).flatten(-2)
            x = x + think(x)
        return self.head(x)

    def one(self, tokens):
        length = len(tokens)
        return self(tokens[None], torch.arange(length)[None], torch.ones(1, length, length, dtype=torch.bool))[0]

    def packed(self, batch):
        numbers = batch["segment_ids"]
        return self(batch["x"][None], batch["position_ids"][None], (numbers[:, None] == numbers)[None])[0]

    def padded(self, batch):
        mask = batch["attention_mask"]
        positions = (mask.long().cumsum(1) - 1).clamp(0)
        return self(batch["x"], positions, mask[:, None, :] & mask[:, :, None])


@pytest.fixture(autouse=True)
def _one_thread():
    """Models as small as these wait for threads more than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model_of(causal):
    torch.manual_seed(0)
    return Transformer(causal).double()


def alone(model, samples):
    """The outputs of each sample, run one by one; the mean loss over their next tokens, and its gradients."""
    outputs = [model.one(sample) for sample in samples]
    losses = [
        functional.cross_entropy(output[:-1], sample[1:], reduction="sum")
        for output, sample in zip(outputs, samples, strict=True)
    ]
    tokens = sum(len(sample) - 1 for sample in samples)
    model.zero_grad()
    loss = sum(losses) / tokens
    loss.backward()
    return outputs, loss.detach(), gradients(model)


def gradients(model):
    return torch.cat([parameter.grad.reshape(-1).clone() for parameter in model.parameters()])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["packed", "right", "left"])
def test_packed_padded_and_one_by_one_agree(causal, form):
    model, samples = model_of(causal), list(map(torch.from_numpy, documents()))
    outputs, loss, slopes = alone(model, samples)
    rule = bl.Packing(24) if form == "packed" else bl.TokenBudget(40, multiple_of=3)
    side = {} if form == "packed" else {"pad_side": form, "pad_value": 49}
    loader = bl.DataLoader(bl.SequenceDataset(x=samples), batching=rule, shuffle=True, labels="x", **side)
    model.zero_grad()
    seen, total, tokens = [], 0.0, 0
    for batch in loader:
        found = model.packed(batch) if form == "packed" else model.padded(batch)
        rows = found if form == "packed" else found[batch["attention_mask"]]
        ends = numpy.cumsum([0, *[len(samples[sample]) for sample in batch["index"].tolist()]])
        for sample, start, end in zip(batch["index"].tolist(), ends, ends[1:], strict=False):
            torch.testing.assert_close(rows[start:end], outputs[sample], rtol=1e-10, atol=1e-10)
            seen.append(sample)
        part = functional.cross_entropy(
            found.flatten(0, -2), batch["labels"].flatten(), ignore_index=-100, reduction="sum"
        )
        part.backward()
        total += float(part.detach())
        tokens += int((batch["labels"] != -100).sum())
    assert sorted(seen) == list(range(len(samples)))
    assert tokens == sum(len(sample) - 1 for sample in samples)
    assert total / tokens == pytest.approx(float(loss), rel=1e-10)
    torch.testing.assert_close(gradients(model) / tokens, slopes, rtol=1e-8, atol=1e-10)


def test_what_one_segment_holds_does_not_reach_another():
    model, samples = model_of(causal=False), list(map(torch.from_numpy, documents()))
    changed = [samples[0], *[50 - 1 - sample for sample in samples[1:]]]
    rule = bl.Packing(64)
    before, after = (
        next(iter(bl.DataLoader(bl.SequenceDataset(x=each), batching=rule))) for each in (samples, changed)
    )
    place = before["index"].tolist().index(0)
    ours = before["segment_ids"] == place + 1
    assert not torch.equal(before["x"], after["x"])
    torch.testing.assert_close(model.packed(before)[ours], model.packed(after)[ours], rtol=0, atol=0)
    # The test can fail: without the mask it does.
    after["segment_ids"].zero_()
    before["segment_ids"].zero_()
    assert not torch.allclose(model.packed(before)[ours], model.packed(after)[ours])


def test_losses_by_segment_need_no_padding():
    """Means over sequences, from segment numbers alone."""
    samples = [torch.randn(size, dtype=torch.float64) for size in SIZES]
    means = {}
    for batch in bl.DataLoader(bl.SequenceDataset(x=samples), batching=bl.Packing(20)):
        count = len(batch["index"])
        sums = torch.zeros(count, dtype=torch.float64).index_add(0, batch["segment_ids"] - 1, batch["x"])
        lengths = batch["cu_seqlens"].diff()
        means |= dict(zip(batch["index"].tolist(), (sums / lengths).tolist(), strict=True))
    assert [means[sample] for sample in range(12)] == pytest.approx([float(sample.mean()) for sample in samples])


# Transformers


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation="sdpa",
    )
    return transformers.LlamaForCausalLM(config).double().eval()


def flattened(samples, chosen, **options):
    collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True, **options)
    return collate([{"input_ids": samples[sample].tolist()} for sample in chosen], return_tensors="pt")


@pytest.mark.parametrize("shuffle", [False, True])
def test_packs_are_those_of_the_flattening_collator(shuffle):
    samples = documents()
    loader = bl.DataLoader(
        bl.SequenceDataset(input_ids=samples),
        batching=bl.Packing(24),
        shuffle=shuffle,
        labels="input_ids",
        output="torch",
    )
    for chosen, batch in zip(loader.plan(), loader, strict=True):
        theirs = flattened(samples, chosen)
        assert torch.equal(theirs["input_ids"][0], batch["input_ids"])
        assert torch.equal(theirs["position_ids"][0], batch["position_ids"])
        assert torch.equal(theirs["seq_idx"][0], batch["segment_ids"] - 1)
        assert torch.equal(theirs["cu_seq_lens_q"], batch["cu_seqlens"])
        assert torch.equal(theirs["cu_seq_lens_k"], batch["cu_seqlens"])
        assert theirs["max_length_q"] == theirs["max_length_k"] == batch["max_seqlen"]
        for name, ours in (
            ("input_ids", "input_ids"),
            ("position_ids", "position_ids"),
            ("seq_idx", "segment_ids"),
            ("cu_seq_lens_q", "cu_seqlens"),
            ("labels", "labels"),
        ):
            assert theirs[name].dtype == batch[ours].dtype
        # They shift in the model, we in the batch.
        assert torch.equal(theirs["labels"][0, 1:], batch["labels"][:-1])
        assert theirs["labels"][0, 0] == batch["labels"][-1] == -100


def test_a_model_of_theirs_takes_our_packs(llama):
    samples = list(map(torch.from_numpy, documents()))
    loader = bl.DataLoader(bl.SequenceDataset(input_ids=samples), batching=bl.Packing(24), labels="input_ids")
    with torch.no_grad():
        for batch in loader:
            out = llama(
                input_ids=batch["input_ids"][None],
                position_ids=batch["position_ids"][None],
                labels=batch["labels"][None],
                shift_labels=batch["labels"][None],
                use_cache=False,
            )
            flat_batch = flattened(samples, batch["index"])
            fields = {name: flat_batch[name] for name in ("input_ids", "position_ids", "labels")}
            theirs = llama(**fields, use_cache=False)
            assert float(out.loss) == pytest.approx(float(theirs.loss), rel=1e-6)
            ends = batch["cu_seqlens"].tolist()
            for sample, (start, end) in zip(batch["index"].tolist(), itertools.pairwise(ends), strict=True):
                expected = llama(input_ids=samples[sample][None]).logits[0]
                torch.testing.assert_close(out.logits[0, start:end], expected, rtol=1e-6, atol=1e-8)


def test_a_model_of_theirs_takes_our_padded_batches(llama):
    samples = list(map(torch.from_numpy, documents()))
    for side in ("right", "left"):
        loader = bl.DataLoader(bl.SequenceDataset(input_ids=samples), batching=bl.TokenBudget(40), pad_side=side)
        with torch.no_grad():
            for batch in loader:
                mask = batch["attention_mask"]
                positions = (mask.long().cumsum(1) - 1).clamp(0)
                logits = llama(input_ids=batch["input_ids"], attention_mask=mask, position_ids=positions).logits
                for row, sample in enumerate(batch["index"].tolist()):
                    expected = llama(input_ids=samples[sample][None]).logits[0]
                    torch.testing.assert_close(logits[row][mask[row]], expected, rtol=1e-6, atol=1e-8)


def tokenizer(side):
    words = {"[PAD]": 49} | {str(number): number for number in range(49)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[PAD]"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", padding_side=side)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "rule",
    [
        bl.FixedSize(5),
        bl.LengthBuckets(5),
        bl.LengthBuckets(5, multiple_of=8),
        bl.TokenBudget(48),
        bl.TokenBudget(48, multiple_of=8),
        bl.CostOptimal(bl.CostModel(50, 1, 0.1)),
        bl.CostOptimal(bl.CostModel(50, 1, 0.1), multiple_of=8),
    ],
    ids=str,
)
def test_padded_batches_are_those_of_the_padding_collator(side, rule):
    samples = documents([*SIZES, 0])
    collate = transformers.DataCollatorWithPadding(tokenizer(side), pad_to_multiple_of=batching.multiple(rule))
    dataset = bl.SequenceDataset(input_ids=samples, label=numpy.arange(13))
    loader = bl.DataLoader(
        dataset, batching=rule, shuffle=True, fields={"input_ids": bl.Field(pad=49)}, pad_side=side, output="torch"
    )
    for chosen, batch in zip(loader.plan(), loader, strict=True):
        theirs = collate([{"input_ids": samples[sample].tolist(), "label": int(sample)} for sample in chosen])
        if not any(len(samples[sample]) for sample in chosen):
            continue
        assert torch.equal(theirs["input_ids"], batch["input_ids"])
        assert torch.equal(theirs["attention_mask"], batch["attention_mask"].long())
        assert torch.equal(theirs["labels"], batch["label"])
        assert torch.equal(theirs["attention_mask"].sum(1), batch["lengths"])
