"""Draw rows of packed documents, and the blocks of attention of one of them under three masks.

    python -m bench.packing.pictures

Promise: segments, blocks and pairs are those of a batch of a loader, not a sketch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import batchloom as bl
import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from bench.harness.pictures import GRID, INK, QUIET, STYLE, picture
from bench.harness.record import results

TOKENS, BLOCK, ROWS = 512, 32, 4
MASKS = {
    'block_mask="causal"': bl.DocumentMask(block_size=BLOCK),
    "window=48": bl.DocumentMask(window=48, block_size=BLOCK),
    'prefix="prompt"': bl.DocumentMask(prefix="prompt", block_size=BLOCK),
}
# Blocks that are skipped, that are looked at pair by pair, and that are seen whole; and the pairs in the former two.
COLOURS = ("#ffffff", "#d9eceb", "#2a8f88", "#176673")
WORDS = ("skipped", "looked at pair by pair", "seen whole", "a pair that sees each other")


def main() -> None:
    """Write the picture."""
    print(draw(results(whole=True) / "pictures"))


def draw(folder: Path) -> Path:
    """Write the picture; return where it is."""
    matplotlib.rcParams.update(STYLE)
    figure = picture(9.6, 6.2)
    grid = figure.add_gridspec(2, len(MASKS), height_ratios=(1, 2.6))
    batches = {name: batch_of(mask) for name, mask in MASKS.items()}
    rows_of(figure.add_subplot(grid[0, :]), next(iter(batches.values())))
    for place, (name, batch) in enumerate(batches.items()):
        mask_of(figure.add_subplot(grid[1, place]), name, batch, first=not place)
    patches = [Patch(facecolor=colour, edgecolor=GRID) for colour in COLOURS]
    figure.legend(patches, WORDS, loc="outside lower center", ncols=len(WORDS))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "block-masks.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def batch_of(mask: bl.DocumentMask) -> dict[str, Any]:
    """Return a batch of rows of documents."""
    rng = numpy.random.default_rng(4)
    lengths = rng.lognormal(4.6, 0.7, 60).astype(int).clip(8, 400)
    ids = [numpy.full(length, 1) for length in lengths]
    prompts = (lengths * rng.uniform(0.2, 0.7, len(lengths))).astype(int)
    dataset = bl.SequenceDataset(ids=ids, prompt=prompts)
    rule = bl.Packing(TOKENS, rows=ROWS)
    return next(iter(bl.DataLoader(dataset, batching=rule, shuffle=True, block_mask=mask, output="numpy")))


def rows_of(axis: Axes, batch: dict[str, Any]) -> None:
    """Draw the documents of each row."""
    segments = batch["segment_ids"]
    shades = numpy.where(segments > 0, 1 + segments % 5, 0)
    palette = ListedColormap(("#f3e3d0", "#10505f", "#237c85", "#55a7a2", "#7abcb1", "#a3d1c3"))
    axis.imshow(shades, aspect="auto", cmap=palette, vmin=0, vmax=5, interpolation="none")
    for row in range(1, len(segments)):
        axis.axhline(row - 0.5, color="white", linewidth=4)
    axis.set_yticks(range(len(segments)), [f"row {row}" for row in range(len(segments))])
    axis.set_title(
        "a batch: a shade is a document, what is left of a row is padding", loc="left", color=INK, fontsize=11
    )
    plain(axis)


def mask_of(axis: Axes, name: str, batch: dict[str, Any], *, first: bool) -> None:
    """Draw the blocks of the first row, and the pairs of tokens in them that see each other."""
    entry = batch["block_mask"]
    shown = numpy.zeros((TOKENS, TOKENS), int)
    for kind, colour in (("kv", 1), ("full_kv", 2)):
        counts, indices = entry[f"{kind}_num_blocks"][0, 0], entry[f"{kind}_indices"][0, 0]
        for row, (count, blocks) in enumerate(zip(counts, indices, strict=True)):
            for block in blocks[:count]:
                shown[row * BLOCK : (row + 1) * BLOCK, block * BLOCK : (block + 1) * BLOCK] = colour
    places = numpy.arange(TOKENS)
    sees = (places >= entry["first"][0][:, None]) & (places < entry["end"][0][:, None])
    assert not sees[shown == 0].any()
    assert sees[shown == 2].all()
    axis.imshow(numpy.where(sees & (shown == 1), 3, shown), cmap=ListedColormap(COLOURS), vmin=0, vmax=3)
    for edge in range(0, TOKENS + 1, BLOCK):
        axis.axhline(edge - 0.5, color=GRID, linewidth=0.5)
        axis.axvline(edge - 0.5, color=GRID, linewidth=0.5)
    axis.set_title(name, loc="left", color=INK, fontsize=11)
    axis.set_xlabel("key")
    axis.set_ylabel("query of row 0" if first else "")
    plain(axis)


def plain(axis: Axes) -> None:
    """Leave out the grid, and the edges of an axis."""
    axis.grid(False)
    axis.tick_params(colors=QUIET, length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


if __name__ == "__main__":
    main()
