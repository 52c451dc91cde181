"""Trains a small language model on the bytes of real text: padded in random order, bucketed, packed.

The text is Shakespeare's if ../shared/data holds it, otherwise the help topics that ship with Python. A sample is a
speech or a paragraph, from a few bytes to a few hundred. First a table compares all rules on their lengths. The same
model is then trained three ways: on random batches of 12, on token budgets over pools sorted by length, and on packed
batches without padding. The output is the padding of each and its speed. Then the loss per byte of one model over the
whole text is computed padded and packed. Both are equal, because no byte of one speech sees a byte of another.

    python examples/text.py
"""

import argparse
import time
from pathlib import Path

import batchloom as bl
import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

SHAKESPEARE = Path(__file__).parents[2] / "shared" / "data" / "tinyshakespeare.txt"
WIDTH, HEADS, LAYERS, LONGEST = 48, 4, 2, 256


def documents(characters: int) -> bl.SequenceDataset:
    """Return the paragraphs of the text as bytes, each cut to the longest that the model takes."""
    if SHAKESPEARE.exists():
        text = SHAKESPEARE.read_text(encoding="utf-8")
    else:
        from pydoc_data.topics import topics

        text = "\n\n".join(topics.values())
    paragraphs = [part.encode()[:LONGEST] for part in text[:characters].split("\n\n") if part.strip()]
    values = torch.frombuffer(bytearray(b"".join(paragraphs)), dtype=torch.uint8)
    offsets = numpy.cumsum([0] + [len(part) for part in paragraphs])
    return bl.SequenceDataset(tokens=(values, offsets))


class Model(nn.Module):
    """A small transformer that guesses the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.mix = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.join = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.think = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(LAYERS)
        )
        self.norm = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS + 1))
        self.out = nn.Linear(WIDTH, 256)

    def forward(self, tokens: Tensor, positions: Tensor, lengths: list[int]) -> Tensor:
        """Return logits ``[batch, length, 256]``; along the second dimension lie segments of these lengths."""
        x = self.token(tokens.long()) + self.position(positions)
        for mix, join, think, norm in zip(self.mix, self.join, self.think, self.norm, strict=False):
            parts = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in mix(norm(x)).chunk(3, dim=-1)]
            # Each segment is a call of its own, so it sees no other: no mask, and no work on what a mask would hide.
            segments = zip(*(part.split(lengths, dim=2) for part in parts), strict=True)
            seen = [functional.scaled_dot_product_attention(q, k, v, is_causal=True) for q, k, v in segments]
            x = x + join(torch.cat(seen, dim=2).transpose(1, 2).flatten(2))
            x = x + think(x)
        logits: Tensor = self.out(self.norm[-1](x))
        return logits


def inputs(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, list[int], Tensor]:
    """Return tokens, positions, lengths of segments, and labels, each with a batch dimension; padded or packed."""
    if "cu_seqlens" in batch:
        lengths = batch["cu_seqlens"].diff().tolist()
        return batch["tokens"][None], batch["position_ids"][None], lengths, batch["labels"][None]
    # Padding is on the right, where no byte before it looks; its own losses are ignored.
    length = batch["tokens"].shape[1]
    return batch["tokens"], torch.arange(length)[None], [length], batch["labels"]


def total_loss(model: Model, batch: dict[str, Tensor]) -> Tensor:
    """Return the sum of the losses over all bytes that have a next one."""
    tokens, positions, lengths, labels = inputs(batch)
    logits = model(tokens, positions, lengths)
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def train(name: str, loader: bl.DataLoader) -> Model:
    """Train for one epoch and print padding and speed."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    plan, seen, start = loader.plan(), 0, time.perf_counter()
    progress = tqdm(loader, desc=name, leave=False, disable=None)
    for step, batch in enumerate(progress):
        tokens = plan.step(step).tokens  # over all ranks, known without communication
        loss = total_loss(model, batch) / tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += tokens
        progress.set_postfix(loss=f"{loss.item():.2f}")
    seconds, stats = time.perf_counter() - start, plan.stats()
    print(
        f"{name:28} {stats['batches']:5} batches, {stats['padding']:6.1%} padding, {seconds:5.1f} s, "
        f"{seen / seconds / 1e3:6.1f} thousand bytes a second"
    )
    return model


@torch.no_grad()
def loss_per_byte(model: Model, loader: bl.DataLoader) -> float:
    """Return the mean loss over every byte of the text that has a next one."""
    model = model.double()
    batches = tqdm(loader, leave=False, disable=None)
    losses = [(total_loss(model, batch), (batch["labels"] != -100).sum()) for batch in batches]
    return float(sum(loss for loss, _ in losses) / sum(count for _, count in losses))


def main() -> None:
    """Train three ways; compare the loss of one model, padded and packed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=100_000, help="how much of the text to use")
    dataset = documents(parser.parse_args().characters)
    # So small a model gains little from a second core, and loses much where something else runs on it.
    torch.set_num_threads(1)
    sizes = dataset.sizes
    print(f"{len(dataset)} paragraphs, {sizes.sum()} bytes, {sizes.min()} to {sizes.max()} each")
    print(bl.compare(dataset, max_tokens=1024))
    rules: dict[str, bl.Rule] = {
        "random batches of 12": bl.FixedSize(12),
        "token budget, sorted pools": bl.TokenBudget(1024, pool=512),
        "packed": bl.Packing(1024, pool=512),
    }
    models = [
        train(name, bl.DataLoader(dataset, batching=rule, shuffle=True, labels="tokens"))
        for name, rule in rules.items()
    ]
    padded = loss_per_byte(models[-1], bl.DataLoader(dataset, batching=bl.TokenBudget(4096), labels="tokens"))
    packed = loss_per_byte(models[-1], bl.DataLoader(dataset, batching=bl.Packing(1024), labels="tokens"))
    print(f"loss per byte of the last model over the whole text: padded {padded:.12f}, packed {packed:.12f}")
    if abs(padded - packed) > 1e-9:
        raise SystemExit("the two differ by more than floating-point tolerance")


if __name__ == "__main__":
    main()
