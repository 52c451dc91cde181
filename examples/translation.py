"""Trains a translator of numbers, from digits to English words, on pairs whose two sides have lengths of their own.

A number of many digits may need few words: 7000000000 needs two. The same model is trained on random batches of 64 and
on token budgets, with about as many steps. In both, each side is padded to its own longest and has its own mask and
lengths. The output is the padding of each side, the time, and the share of unseen numbers that are translated without
a mistake; then some of them.

    python examples/translation.py
"""

import argparse
import time
from typing import Any

import batchloom as bl
import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from tqdm import tqdm

TESTS, DIGITS, EPOCHS = 1000, 15, 5
BATCH, TOKENS = 64, 1300  # samples, or digits and words with padding: about as many steps
WIDTH, LEARNING_RATE = 64, 5e-3
UNITS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
POWERS = {10**12: "trillion", 10**9: "billion", 10**6: "million", 1000: "thousand", 100: "hundred"}
WORDS = ["<pad>", "<start>", "<end>", *UNITS.split(), *TENS.split(), *POWERS.values()]
PAD, START, END = range(3)
NUMBER = {word: number for number, word in enumerate(WORDS)}

Batch = dict[str, Tensor]


def spell(number: int) -> list[str]:
    """Return the words of a number; zero has none here."""
    for power, name in POWERS.items():
        if number >= power:
            return [*spell(number // power), name, *spell(number % power)]
    if number >= 20:
        return [WORDS[NUMBER["twenty"] + number // 10 - 2], *spell(number % 10)]
    return [WORDS[NUMBER["one"] + number - 1]] if number else []


def made_up(count: int) -> list[int]:
    """Return different numbers of 1 to 15 digits, many of them zeros."""
    random = numpy.random.default_rng(0)
    digits = random.integers(0, 10, (count, DIGITS)) * (random.random((count, DIGITS)) < 0.6)
    lengths = random.integers(1, DIGITS + 1, count)
    numbers = {int("".join(map(str, row[:length]))) for row, length in zip(digits, lengths, strict=True)}
    return [int(number) for number in random.permutation(sorted(numbers - {0}))]


def pairs(numbers: list[int]) -> bl.SequenceDataset:
    """Return digits as source and words as target, in a byte each."""
    source = [numpy.array([int(digit) + 1 for digit in str(number)], numpy.uint8) for number in numbers]
    words = [[START, *(NUMBER[word] for word in spell(number)), END] for number in numbers]
    target = [numpy.array(line, numpy.uint8) for line in words]
    return bl.SequenceDataset(source=source, target=target, own_lengths=("target",), of="sum")


def load(dataset: bl.SequenceDataset, rule: bl.Rule, **options: Any) -> bl.DataLoader:
    """Return a loader whose batches go into embeddings."""
    return bl.DataLoader(dataset, batching=rule, dtype="int64", pad_value=PAD, output="torch", **options)


class Translator(nn.Module):
    """An encoder and a decoder, both recurrent; the decoder looks at all that the encoder said."""

    def __init__(self) -> None:
        super().__init__()
        self.digit, self.word = nn.Embedding(11, WIDTH), nn.Embedding(len(WORDS), WIDTH)
        self.place = nn.Embedding(DIGITS + 1, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, len(WORDS)))

    def encode(self, batch: Batch) -> Tensor:
        """Return what the encoder says of each digit, ``[samples, digits, WIDTH]``; padding takes no part."""
        places = (batch["lengths"][:, None] - torch.arange(batch["source"].shape[1])).clamp(min=0)
        digits = self.digit(batch["source"]) + self.place(places)
        packed = pack_padded_sequence(digits, batch["lengths"], batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.encoder(packed)[0], batch_first=True)[0]

    def decode(self, said: Tensor, mask: Tensor, words: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits of the words after each of ``words``, and the state of the decoder."""
        states, state = self.decoder(self.word(words), state)
        seen = functional.scaled_dot_product_attention(states, said, said, attn_mask=mask[:, None])
        return self.out(torch.cat([states, seen], dim=2)), state

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean loss over all words of the batch."""
        logits, _ = self.decode(self.encode(batch), batch["attention_mask"], batch["target"][:, :-1])
        kept = batch["target_mask"][:, 1:]
        return functional.cross_entropy(logits[kept], batch["target"][:, 1:][kept])

    @torch.no_grad()
    def translate(self, batch: Batch) -> Tensor:
        """Return the likeliest word after each that was chosen, up to the longest target: ``[samples, words]``."""
        said, state = self.encode(batch), None
        words = [batch["target"][:, :1]]
        for _ in range(batch["target"].shape[1] - 1):
            logits, state = self.decode(said, batch["attention_mask"], words[-1], state)
            words.append(logits.argmax(2))
        return torch.cat(words, dim=1)


def right(model: Translator, loader: bl.DataLoader) -> float:
    """Return the share of numbers that are translated without a mistake."""
    same = [((model.translate(batch) == batch["target"]) | ~batch["target_mask"]).all(1) for batch in loader]
    return float(torch.cat(same).float().mean())


def padding(masks: list[Tensor]) -> float:
    """Return the share of places that hold no data."""
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def train(name: str, loader: bl.DataLoader) -> tuple[Translator, float]:
    """Return the trained model and the seconds that an epoch took."""
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    begun = time.perf_counter()
    bar = tqdm(range(EPOCHS), desc=name, unit="epoch", leave=False, disable=None)
    for _ in bar:
        for batch in loader:
            loss = model.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        decay.step()
        bar.set_postfix(loss=f"{loss.item():.3f}")
    return model, (time.perf_counter() - begun) / EPOCHS


def show(model: Translator, numbers: list[int]) -> None:
    """Print translations of some numbers, in their order."""
    (batch,) = load(pairs(numbers), bl.FixedSize(len(numbers)))
    for number, words in zip(numbers, model.translate(batch).tolist(), strict=True):
        end = words.index(END) if END in words else len(words)
        print(f"  {number}: {' '.join(WORDS[word] for word in words[1:end])}")


def main() -> None:
    """Train on both kinds of batches, test, and translate some numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12_000, help="how many numbers to draw, some of them equal")
    # So small a model gains little from a second core, and loses much where something else runs on it.
    torch.set_num_threads(1)
    numbers = made_up(parser.parse_args().pairs + TESTS)
    dataset, unseen = pairs(numbers[TESTS:]), pairs(numbers[:TESTS])
    tests = load(unseen, bl.TokenBudget(16_384))
    print(f"{len(dataset)} numbers to train on, {len(unseen)} others to test on, {EPOCHS} epochs")
    rules: dict[str, bl.Rule] = {
        f"random batches of {BATCH}": bl.FixedSize(BATCH),
        f"budget of {TOKENS}": bl.TokenBudget(TOKENS),
    }
    print(f"{'':22} {'steps':>6} {'padding: source':>16} {'target':>7} {'an epoch':>10} {'right':>7}")
    for name, rule in rules.items():
        loader = load(dataset, rule, shuffle=True)
        model, seconds = train(name, loader)
        source, target = (padding([batch[field] for batch in loader]) for field in ("attention_mask", "target_mask"))
        reached = right(model, tests)
        print(f"{name:22} {len(loader):6} {source:16.1%} {target:7.1%} {seconds:8.2f} s {reached:7.1%}")
        if reached < 0.95:
            raise SystemExit("the model did not learn to translate")
    print("translations of numbers that it never saw:")
    show(model, numbers[:4])


if __name__ == "__main__":
    main()
