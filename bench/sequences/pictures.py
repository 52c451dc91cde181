"""Draw the experiment on documents of any length: the padding, and the rest of it under each strategy.

Promises:

- ``draw`` writes four SVG files that need nothing but this module and NumPy: a batch of documents in given order, a
  late batch of sorted ones, the whole set, and the padded length of each batch as areas laid over each other.
- Padding has one flat colour in all of them, and a token is a cell whose shade is its number.
- An area in ``padded-length.svg`` is a number of tokens: documents across, length upwards. The lower part shows a
  piece of the upper one, larger.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from pathlib import Path
from xml.sax.saxutils import escape

import numpy
from numpy.typing import NDArray
from torch import Tensor

from bench.sequences.peers import GIVEN, LIMITED, OPTIMAL, PACKED, PAD_ALL, SORTED

WIDTH, MARGIN = 1120, 40
PLOT_LEFT, PLOT_ACROSS = 80, 1000
INK, QUIET, GRID = "#1f2a33", "#65727e", "#dfe4e8"
PADDING, PADDING_INK = "#f3e3d0", "#8a7255"
SHADES = ("#0b3b4a", "#10505f", "#176673", "#237c85", "#379294", "#55a7a2", "#7abcb1", "#a3d1c3")
GIVEN_INK = "#a5681c"
AREAS = {PAD_ALL: PADDING, GIVEN: "#eec391", LIMITED: "#d9822b", SORTED: "#8c5a86", OPTIMAL: "#2a8f88"}
LEFT = (LIMITED, SORTED, OPTIMAL)
MOST_LEFT = 16
FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


@dataclass(frozen=True)
class Cut:
    """A batch: its documents, and the shape of the tokens that hold them."""

    documents: list[int]
    shape: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Return the number of tokens that the model computes."""
        return prod(self.shape)

    @property
    def step(self) -> tuple[int, int]:
        """Return the number of its documents and their padded length."""
        return len(self.documents), self.shape[-1]


class Drawing:
    """An SVG picture, built element by element on white."""

    def __init__(self, height: int, title: str, subtitle: str) -> None:
        self.height = height
        self._parts = [f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
        self._title = title
        self.text(MARGIN, 44, title, size=23, weight=600)
        self.text(MARGIN, 70, subtitle, size=15, colour=QUIET)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: int = 14,
        colour: str = INK,
        anchor: str = "start",
        weight: int = 400,
    ) -> None:
        """Write a line of words."""
        style = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>')

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> None:
        """Fill a rectangle, or draw its edge."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self._parts.append(f'<rect {place} fill="{fill}" stroke="{stroke}"/>')

    def line(self, points: Iterable[tuple[float, float]], colour: str, width: float = 1) -> None:
        """Draw a line from point to point."""
        self._parts.append(f'<path d="{path(points)}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def area(self, points: Iterable[tuple[float, float]], fill: str) -> None:
        """Fill the polygon of the points."""
        self._parts.append(f'<path d="{path(points)}Z" fill="{fill}"/>')

    def cells(self, x: float, y: float, width: float, height: float, colours: NDArray[numpy.uint8]) -> None:
        """Draw a raster of the colours that ``palette`` numbers."""
        data = base64.b64encode(png(colours)).decode()
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none"'
        self._parts.append(f'<image {place} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>')

    def save(self, path: Path) -> Path:
        """Write the file."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" font-family="{FONT}"'
        named = f' role="img"><title>{escape(self._title)}</title>'
        path.write_text("\n".join([head + named, *self._parts, "</svg>\n"]))
        return path


def path(points: Iterable[tuple[float, float]]) -> str:
    """Return the data of a path from point to point."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def png(colours: NDArray[numpy.uint8]) -> bytes:
    """Return a PNG whose pixels are numbers of ``palette``, four bits each."""
    height, width = colours.shape
    even = numpy.pad(colours, ((0, 0), (0, width % 2)))
    packed = even[:, ::2] << 4 | even[:, 1::2]
    rows = numpy.pad(packed, ((0, 0), (1, 0))).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0)
    colour_table = b"".join(bytes.fromhex(colour[1:]) for colour in (PADDING, *SHADES))
    chunks = ((b"IHDR", head), (b"PLTE", colour_table), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def draw(folder: Path, documents: Sequence[Tensor], cuts: dict[str, list[Cut]]) -> list[Path]:
    """Draw all pictures; return where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    given, late = cuts[GIVEN], cuts[SORTED]
    number = len(late) * 9 // 10
    pictures = {
        "batch": batch(documents, given[0], "One batch in the order given"),
        "late-batch": batch(documents, late[number], f"Batch {number + 1} of {len(late)} after sorting by length"),
        "documents": whole_set(documents),
        "padded-length": padded_length([len(document) for document in documents], cuts),
    }
    return [picture.save(folder / f"{name}.svg") for name, picture in pictures.items()]


def shades(documents: Sequence[Tensor], length: int, most: int) -> NDArray[numpy.uint8]:
    """Return a row for each document: the shade of each token, then padding to ``length``."""
    rows = numpy.zeros((len(documents), length), numpy.uint8)
    for row, document in zip(rows, documents, strict=True):
        row[: len(document)] = 1 + document.numpy() * len(SHADES) // (most + 1)
    return rows


def batch(documents: Sequence[Tensor], cut: Cut, title: str) -> Drawing:
    """Draw the tokens of a padded batch, a row for each document."""
    chosen = [documents[document] for document in cut.documents]
    rows = shades(chosen, cut.shape[1], max(int(document.max()) for document in chosen))
    padding = numpy.count_nonzero(rows == 0)
    subtitle = (
        f"{len(rows)} documents padded to {rows.shape[1]} tokens. A cell is a token, its shade the token's number."
    )
    left, top, across, down, gap = 150, 100, WIDTH - MARGIN - 150, 30, 5
    drawing = Drawing(top + len(rows) * (down + gap) + 62, f"{title}: {padding / rows.size:.0%} is padding", subtitle)
    for number, (document, row) in enumerate(zip(chosen, rows, strict=True)):
        y = top + number * (down + gap)
        drawing.text(left - 14, y + down * 0.67, count(len(document), "token"), colour=QUIET, anchor="end")
        drawing.cells(left, y, across, down, row.repeat(8)[None].repeat(8, 0))
    key(drawing, left, top + len(rows) * (down + gap) + 20)
    return drawing


def count(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", "\u00a0")


def key(drawing: Drawing, x: float, y: float) -> None:
    """Draw the key to the colours of a heat map."""
    for number, shade in enumerate(SHADES):
        drawing.rectangle(x + number * 14, y, 14, 14, shade)
    drawing.text(x + len(SHADES) * 14 + 8, y + 12, "tokens", colour=QUIET)
    drawing.rectangle(x + len(SHADES) * 14 + 80, y, 28, 14, PADDING)
    drawing.text(x + len(SHADES) * 14 + 116, y + 12, "padding", colour=QUIET)


def whole_set(documents: Sequence[Tensor]) -> Drawing:
    """Draw the tokens of all documents padded to the longest, a column for each document."""
    longest = max(len(document) for document in documents)
    columns = shades(documents, longest, max(int(document.max()) for document in documents)).T
    padding = int(numpy.count_nonzero(columns == 0))
    subtitle = f"{len(documents)} documents side by side, each as long as the longest, {longest} tokens."
    left, top = MARGIN + 40, 100
    across, down = WIDTH - MARGIN - left, 407
    drawing = Drawing(
        top + down + 62, f"Padded to the longest, the whole set is {padding / columns.size:.0%} padding", subtitle
    )
    drawing.cells(left, top, across, down, columns)
    words = f"{count(padding, 'place')} of padding"
    drawing.text(left + across / 2, top + down * 0.9, words, size=18, colour=PADDING_INK, anchor="middle", weight=600)
    for tick in range(0, longest, 100):
        drawing.text(left - 8, top + down * tick / longest + 5, str(tick), size=13, colour=QUIET, anchor="end")
    drawing.text(left - 8, top - 14, "tokens", size=13, colour=QUIET, anchor="end")
    key(drawing, left, top + down + 20)
    return drawing


@dataclass(frozen=True)
class Plot:
    """A part of a drawing: documents across, tokens of each upwards."""

    drawing: Drawing
    top: float
    down: float
    documents: int
    most: float
    left: float = PLOT_LEFT
    across: float = PLOT_ACROSS

    def at(self, document: float, tokens: float) -> tuple[float, float]:
        """Return where a document and a number of tokens are in the drawing."""
        up = min(tokens / self.most, 1)
        return self.left + self.across * document / self.documents, self.top + self.down * (1 - up)

    def steps(self, tokens: Iterable[tuple[int, int]], fill: str) -> None:
        """Fill steps side by side: so many documents wide, so many tokens high."""
        points, document = [self.at(0, 0)], 0
        for high, steps in groupby(tokens, key=lambda step: step[1]):
            start, document = document, document + sum(wide for wide, _ in steps)
            points += [self.at(start, high), self.at(document, high)]
        self.drawing.area([*points, self.at(document, 0)], fill)

    def levels(self, levels: Iterable[int]) -> None:
        """Draw a line at each number of tokens, and number it."""
        for level in levels:
            (x, y), end = self.at(0, level), self.at(self.documents, level)
            self.drawing.line([(x, y), end], GRID)
            self.drawing.text(x - 10, y + 5, str(level), size=13, colour=QUIET, anchor="end")

    def numbers(self, step: int) -> None:
        """Number the documents."""
        for document in range(0, self.documents + 1, step):
            x, y = self.at(document, 0)
            self.drawing.text(x, y + 20, str(document), size=13, colour=QUIET, anchor="middle")

    def label(self, document: float, tokens: float, name: str, colour: str, more: str) -> None:
        """Write a name at a place, and more below it."""
        x, y = self.at(document, tokens)
        self.drawing.text(x, y, name, size=15, colour=colour, weight=600)
        self.drawing.text(x, y + 20, more, size=15, colour=colour)


def padded_length(lengths: Sequence[int], cuts: dict[str, list[Cut]]) -> Drawing:
    """Draw the padded length of each batch as areas laid over each other, and the padding that sorting leaves."""
    real, longest, number = sum(lengths), max(lengths), len(lengths)
    title = "The padded length of each batch, one strategy laid over the other"
    subtitle = "A step is a batch: as wide as its documents are many, as high as it is padded. Its area is its tokens."
    drawing = Drawing(1090, title, subtitle)
    whole = Plot(drawing, 125, 380, number, longest)
    whole.levels(range(0, longest, 100))
    whole.numbers(max(number // 5, 1))
    for name in (PAD_ALL, GIVEN, *LEFT):
        steps = [cut.step for cut in cuts[name]]
        whole.steps(steps if name == GIVEN else sorted(steps, key=lambda step: step[1]), AREAS[name])
    whole.steps(((1, length) for length in sorted(lengths)), SHADES[0])
    whole.label(0.42 * number, 0.9 * longest, PAD_ALL, PADDING_INK, padding_of(cuts[PAD_ALL], real))
    whole.label(0.42 * number, 0.7 * longest, GIVEN, GIVEN_INK, padding_of(cuts[GIVEN], real))
    drawing.text(*whole.at(0.985 * number, 0.06 * longest), f"{count(real, 'token')} of text", 15, "white", "end", 600)
    across = "documents, from the shortest to the longest; the light steps in the order given"
    drawing.text(PLOT_LEFT - 10, 108, "tokens", size=13, colour=QUIET, anchor="end")
    drawing.text(PLOT_LEFT, 548, across, size=13, colour=QUIET)
    drawing.text(
        MARGIN, 600, "What sorting leaves, seen closer: the padding of each document, in tokens", size=18, weight=600
    )
    for place, name in enumerate(LEFT):
        strip(drawing, 660 + place * 135, lengths, name, cuts[name])
    words = f"batchloom Packing: {len(cuts[PACKED])} batches, {padding_of(cuts[PACKED], real)}"
    drawing.text(PLOT_LEFT, 1060, words, size=15, colour=SHADES[0], weight=600)
    return drawing


def strip(drawing: Drawing, top: float, lengths: Sequence[int], name: str, cuts: Sequence[Cut]) -> None:
    """Draw the padding of each document under one strategy."""
    plot = Plot(drawing, top, 84, len(lengths), MOST_LEFT)
    plot.levels(range(0, MOST_LEFT + 1, 8))
    ascending = sorted(cuts, key=lambda cut: cut.shape[1])
    left = [cut.shape[1] - length for cut in ascending for length in sorted(lengths[each] for each in cut.documents)]
    plot.steps(((1, tokens) for tokens in left), AREAS[name])
    words = f"{name}: {len(cuts)} batches, {padding_of(cuts, sum(lengths))}"
    drawing.text(PLOT_LEFT, top - 12, words, size=15, colour=AREAS[name], weight=600)
    if max(left) > MOST_LEFT:
        end = PLOT_LEFT + PLOT_ACROSS
        drawing.text(end, top - 12, f"up to {max(left)}", size=15, colour=AREAS[name], anchor="end", weight=600)


def padding_of(cuts: Sequence[Cut], real: int) -> str:
    """Return the tokens of padding in some batches, in words."""
    return f"{count(sum(cut.tokens for cut in cuts) - real, 'token')} of padding"
