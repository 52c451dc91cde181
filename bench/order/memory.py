"""Measure resident memory over many epochs, finished and abandoned half-way, each in a process of its own."""

from __future__ import annotations

from itertools import islice
from typing import Any

import batchloom
import torch

from bench.harness.claims import Claim
from bench.harness.processes import elsewhere, peak, reset_peak, resident
from bench.harness.report import table
from bench.order.peers import BATCH

MEBIBYTE = 2**20
EPOCHS, EVERY = 50, 5
ROWS, WIDTH = 100_000, 256
# What a block of a loader takes. Resident memory is flat when it moves by no more. In flight are the blocks formed
# ahead and the one in use; the loop variable holds the last batch of the one before while it asks for the next.
# Stacks of threads and lists of numbers are resident, too.
BLOCK_MEBIBYTES, PREFETCH, HELD, OTHER_MEBIBYTES = 4, 2, 1, 1


def measure_memory(scale: float) -> list[dict[str, Any]]:
    """Run resident memory over many epochs, finished and abandoned half-way."""
    rows = max(round(ROWS * scale), 16 * BATCH)
    cases = [elsewhere(memory_of_epochs, rows, abandon) for abandon in (False, True)]
    heads = ("MiB over the start, after epoch", *(str(epoch) for epoch in cases[0]["epochs"]), "peak")
    grown = [[*each["grown_mebibytes"], each["peak_mebibytes"]] for each in cases]
    lines = [(each["iteration"], *(f"{size:.1f}" for size in sizes)) for each, sizes in zip(cases, grown, strict=True)]
    table(f"resident memory, {rows} rows of {WIDTH} float32", heads, lines)
    return cases


def memory_of_epochs(rows: int, abandon: bool) -> dict[str, Any]:
    """Iterate for 50 epochs; return the growth of resident memory after every fifth."""
    dataset = batchloom.TensorDataset(torch.rand(rows, WIDTH), torch.rand(rows))
    loader = batchloom.DataLoader(dataset, batch_size=BATCH, shuffle=True, prefetch=PREFETCH)
    steps = len(loader) // 2 if abandon else len(loader)
    before, grown = reset_peak(), []
    for epoch in range(1, EPOCHS + 1):
        run_steps(loader, steps)
        if epoch % EVERY == 0:
            grown.append((resident() - before) / MEBIBYTE)
    iteration = "abandoned half-way" if abandon else "finished"
    most, moved = (peak() - before) / MEBIBYTE, max(grown) - min(grown)
    bound = (PREFETCH + 1 + HELD) * BLOCK_MEBIBYTES + OTHER_MEBIBYTES
    claims = [
        Claim(f"MiB between least and most resident, {iteration}", moved, "<=", BLOCK_MEBIBYTES),
        Claim(f"MiB at most over the start, {iteration}", most, "<=", bound),
    ]
    epochs = list(range(EVERY, EPOCHS + 1, EVERY))
    facts = {"name": "memory", "iteration": iteration, "rows": rows, "row_floats": WIDTH, "epochs": epochs}
    figures = {"grown_mebibytes": grown, "peak_mebibytes": most}
    return {**facts, **figures, "claims": [claim.record() for claim in claims]}


def run_steps(loader: batchloom.DataLoader, steps: int) -> None:
    """Take some steps of an epoch and leave the rest."""
    for _ in islice(loader, steps):
        pass
