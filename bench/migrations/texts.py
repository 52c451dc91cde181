"""Rows of texts: padded pairs of GLUE, translations, tables, masked language models, batches without duplicates.

Tokenizers are small and made here; tables are made as the scripts tokenise them. No code of the scripts is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import batchloom
import numpy
import torch
from batchloom import BatchSampler, Crop, DataLoader, Field, SequenceDataset
from torch import Tensor
from torch.utils.data import DataLoader as TorchLoader

from bench.harness.checkouts import need_checkout, need_package, take
from bench.migrations.rows import Pass, Row, Source, expect_equal, same

GLUE = Source("huggingface/accelerate", "16cb6eb", "examples/nlp_example.py")
TRANSLATION = Source("harvardnlp/annotated-transformer", "debc9fd", "the_annotated_transformer.py")
MODULE = Source("Lightning-AI/tutorials", "1581765", "lightning_examples/text-transformers/text-transformers.py")
PAIRS = Source("sentence-transformers 6.2", "", "sentence_transformers/sampler.py")
MASKED = Source("transformers 5.23", "", "transformers/data/data_collator.py")
PAD, UNKNOWN, BEGIN, END, MASK = range(5)
SPECIAL, WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), 5000


def make_tokenizer() -> Any:
    """Return a fast tokenizer of words that are numbers."""
    models = need_package("tokenizers.models")
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *map(str, range(WORDS))])}
    model = need_package("tokenizers").Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    given = dict(zip(names, SPECIAL, strict=True))
    return need_package("transformers").PreTrainedTokenizerFast(tokenizer_object=model, **given)


def draw_ids(random: numpy.random.Generator, lengths: Any) -> list[list[int]]:
    """Return ids for each text, as its number says, between the ids that begin and end it."""
    return [[BEGIN, *random.integers(5, WORDS, length - 2).tolist(), END] for length in lengths]


# ---- accelerate: pairs of sentences, padded to the longest -----------------------------------------------------------

MRPC, PAIRS_A_BATCH = 3668, 16


def prepare_glue(folder: Path, scale: float) -> Any:
    """Make a tokenised table of the size of MRPC; load ``collate_fn``."""
    tables, random = need_package("datasets"), numpy.random.default_rng(0)
    rows = max(round(MRPC * scale), 200)
    ids = draw_ids(random, random.integers(20, 90, rows))
    columns = {
        "labels": random.integers(0, 2, rows).tolist(),
        "input_ids": ids,
        "token_type_ids": [[0] * (len(row) // 2) + [1] * (len(row) - len(row) // 2) for row in ids],
        "attention_mask": [[1] * len(row) for row in ids],
    }
    table = tables.Dataset.from_dict(columns)
    kinds = SimpleNamespace(XLA="XLA")
    space = {"tokenizer": make_tokenizer(), "DistributedType": kinds}
    space["accelerator"] = SimpleNamespace(distributed_type="NO", mixed_precision="no")
    file = need_checkout(GLUE.checkout) / GLUE.file
    return SimpleNamespace(table=table, collate=take(file, ["collate_fn"], space)["collate_fn"])


def glue(data: Any, shuffle: bool) -> Pass:
    """Use the table in torch's loader with ``collate_fn``."""
    options = {"shuffle": shuffle, "collate_fn": data.collate, "batch_size": PAIRS_A_BATCH, "drop_last": True}
    loader = TorchLoader(data.table, **options)
    return lambda: loader


def glue_loom(data: Any, shuffle: bool) -> Pass:
    """Give the table to a dataset of sequences."""
    options = {"shuffle": shuffle, "drop_last": True, "output": "torch", "extras": ("attention_mask",)}
    loader = DataLoader(SequenceDataset(data.table), PAIRS_A_BATCH, **options)
    return lambda: loader


def check_glue(row: Row, data: Any) -> int:
    """Compare every batch in order, one side after the other; masks of batchloom are booleans."""
    number = 0
    script, loom = (list(side(data, False)()) for side in (row.script, row.loom))
    for number, (theirs, ours) in enumerate(zip(script, loom, strict=True), 1):
        found = {**ours, "attention_mask": ours["attention_mask"].long()}
        expect_equal(row.name, number, dict(sorted(theirs.items())), dict(sorted(found.items())))
    return number


# ---- annotated-transformer: pairs of sentences, padded to 128 --------------------------------------------------------

SENTENCES, PADDED, BLANK, TRANSLATIONS_A_BATCH = 29_000, 128, 2, 32


class Vocabulary(dict):  # type: ignore[type-arg]
    """The ids of tokens, as a vocabulary of torchtext gives them."""

    def __call__(self, tokens: list[str]) -> list[int]:
        """Return the id of each token."""
        return [self[token] for token in tokens]


def prepare_translation(folder: Path, scale: float) -> Any:
    """Make pairs of the size of Multi30k, whose tokens stand between spaces; load ``collate_batch``."""
    random = numpy.random.default_rng(0)
    rows = max(round(SENTENCES * scale), 300)
    vocabulary = Vocabulary({str(number): number + 3 for number in range(WORDS)})
    sides = [[" ".join(map(str, random.integers(0, WORDS, n))) for n in random.integers(5, 30, rows)] for _ in range(2)]
    space = {"torch": torch, "pad": torch.nn.functional.pad}
    file = need_checkout(TRANSLATION.checkout) / TRANSLATION.file
    collate = take(file, ["collate_batch"], space)["collate_batch"]
    return SimpleNamespace(pairs=list(zip(*sides, strict=True)), vocabulary=vocabulary, collate=collate)


def translation(data: Any, shuffle: bool) -> Pass:
    """Use ``collate_batch`` as ``create_dataloaders`` does; it tokenises each batch again."""

    def collate(batch: Any) -> tuple[Tensor, Tensor]:
        both = (str.split, str.split, data.vocabulary, data.vocabulary)
        return data.collate(batch, *both, torch.device("cpu"), max_padding=PADDED, pad_id=BLANK)

    loader = TorchLoader(data.pairs, batch_size=TRANSLATIONS_A_BATCH, shuffle=shuffle, collate_fn=collate)
    return lambda: loader


def translation_loom(data: Any, shuffle: bool) -> Pass:
    """Tokenise once, and pad to the same width."""
    sides = [[[0, *data.vocabulary(text.split()), 1] for text in side] for side in zip(*data.pairs, strict=True)]
    dataset = SequenceDataset(source=sides[0], target=sides[1], own_lengths=("target",))
    slot = Field(slot=Crop(PADDED, keep="start"), pad=BLANK)
    options = {"fields": {"source": slot, "target": slot}, "dtype": "int64", "output": "torch", "extras": ()}
    loader = DataLoader(dataset, TRANSLATIONS_A_BATCH, shuffle=shuffle, **options)
    return lambda: ((batch["source"], batch["target"]) for batch in loader)


# ---- text-transformers: a tokenised table ----------------------------------------------------------------------------

COLA, TEXTS_A_BATCH = 8551, 32


def prepare_module(folder: Path, scale: float) -> Any:
    """Make a table of the size of CoLA, tokenised and padded to 128 as ``setup`` does, in the format of torch."""
    tables, random = need_package("datasets"), numpy.random.default_rng(0)
    rows = max(round(COLA * scale), 300)
    lengths = random.integers(5, 40, rows)
    ids = [row + [PAD] * (PADDED - len(row)) for row in draw_ids(random, lengths)]
    masks = [[1] * length + [0] * (PADDED - length) for length in lengths.tolist()]
    labels = random.integers(0, 2, rows).tolist()
    table = tables.Dataset.from_dict({"input_ids": ids, "attention_mask": masks, "labels": labels})
    table.set_format(type="torch", columns=table.column_names)
    return SimpleNamespace(table=table)


def module(data: Any, shuffle: bool) -> Pass:
    """Use the table in torch's loader, as ``train_dataloader`` does."""
    loader = TorchLoader(data.table, batch_size=TEXTS_A_BATCH, shuffle=shuffle)
    return lambda: loader


def module_loom(data: Any, shuffle: bool) -> Pass:
    """Open the table as rows."""
    dataset = batchloom.open(data.table, kind="rows")
    loader = DataLoader(dataset, TEXTS_A_BATCH, shuffle=shuffle, output="torch", dtype="int64")
    return lambda: loader


# ---- transformers: masks of a masked language model ------------------------------------------------------------------

BLOCKS, BLOCKS_A_BATCH = 8000, 8


def prepare_masked(folder: Path, scale: float) -> Any:
    """Make blocks of 128 tokens; load the collator."""
    random = numpy.random.default_rng(0)
    ids = draw_ids(random, [PADDED] * max(round(BLOCKS * scale), 200))
    collator = need_package("transformers").DataCollatorForLanguageModeling(make_tokenizer(), mlm_probability=0.15)
    return SimpleNamespace(ids=ids, collator=collator)


def masked(data: Any, shuffle: bool) -> Pass:
    """Use the collator in torch's loader, whose order has a generator of its own."""
    torch.manual_seed(0)
    rows = [{"input_ids": row} for row in data.ids]
    options = {"shuffle": shuffle, "generator": torch.Generator(), "collate_fn": data.collator}
    loader = TorchLoader(rows, batch_size=BLOCKS_A_BATCH, **options)
    return lambda: loader


def masked_loom(data: Any, shuffle: bool) -> Pass:
    """Make batches of rows; the collator's own function draws the masks of each batch."""
    torch.manual_seed(0)
    loader = DataLoader(SequenceDataset(input_ids=data.ids), BLOCKS_A_BATCH, shuffle=shuffle, output="torch")
    special = torch.tensor(sorted(set(data.collator.tokenizer.all_special_ids)))

    def epoch() -> Iterator[dict[str, Tensor]]:
        for batch in loader:
            ids = batch["input_ids"]
            held = torch.isin(ids, special)
            inputs, labels = data.collator.torch_mask_tokens(ids, special_tokens_mask=held)
            yield {"input_ids": inputs, "attention_mask": batch["attention_mask"], "labels": labels}

    return epoch


# ---- sentence-transformers: batches without duplicates ---------------------------------------------------------------

PAIRED, DISTINCT_A_BATCH = 9000, 64


def prepare_pairs(folder: Path, scale: float) -> Any:
    """Make pairs of texts, some of them several times."""
    sampler = need_package("sentence_transformers.sampler").NoDuplicatesBatchSampler
    tables, random = need_package("datasets"), numpy.random.default_rng(0)
    rows = max(round(PAIRED * scale), 1000)
    texts = [[f"text {number}" for number in random.integers(0, rows * 2, rows)] for _ in range(2)]
    table = tables.Dataset.from_dict({"anchor": texts[0], "positive": texts[1]})
    return SimpleNamespace(table=table, anchor=texts[0], positive=texts[1], sampler=sampler)


def pairs(data: Any, shuffle: bool) -> Pass:
    """Use ``NoDuplicatesBatchSampler``: the order alone."""
    generator = torch.Generator()
    sampler = data.sampler(data.table, batch_size=DISTINCT_A_BATCH, drop_last=True, generator=generator, seed=0)
    epochs = iter(range(10**9))

    def epoch() -> Any:
        sampler.set_epoch(next(epochs))
        return sampler

    return epoch


def pairs_loom(data: Any, shuffle: bool) -> Pass:
    """Make a sampler whose batches hold no text twice, in whichever column."""
    keys = {"anchor": data.anchor, "positive": data.positive}
    sampler = BatchSampler(
        len(data.anchor), batch_size=DISTINCT_A_BATCH, shuffle=True, drop_last=True, distinct_by=keys
    )
    return lambda: sampler


def check_pairs(row: Row, data: Any) -> int:
    """Look for a text that comes twice in a batch, and for a pair that comes twice in an epoch."""
    checked = 0
    for side in (row.script, row.loom):
        seen: list[int] = []
        for batch in side(data, True)():
            checked += 1
            pairs = {(data.anchor[number], data.positive[number]) for number in batch}
            texts = [text for pair in pairs for text in {*pair}]
            if len(batch) != DISTINCT_A_BATCH or len(set(texts)) != len(texts):
                raise SystemExit(f"row {row.name}, batch {checked}: a text comes twice, or the batch is not full")
            seen += batch
        if len(set(seen)) != len(seen) or len(data.anchor) - len(seen) > 2 * DISTINCT_A_BATCH:
            raise SystemExit(f"row {row.name}: {len(set(seen))} of {len(seen)} samples of {len(data.anchor)}")
    return checked


ROWS = (
    Row("07", "pairs of sentences, padded", GLUE, prepare_glue, glue, glue_loom, check_glue, changed="36 / 18"),
    Row(
        "11",
        "translations",
        TRANSLATION,
        prepare_translation,
        translation,
        translation_loom,
        same,
        batches=907,
        changed="92 / 17",
    ),
    Row("17", "no text twice in a batch", PAIRS, prepare_pairs, pairs, pairs_loom, check_pairs, changed="1 / 1"),
    Row("19", "a tokenised table", MODULE, prepare_module, module, module_loom, same, batches=268, changed="7 / 8"),
    Row("21", "masks of a language model", MASKED, prepare_masked, masked, masked_loom, check_glue, changed="1 / 9"),
)
