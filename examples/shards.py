"""Reads twenty shards of tokens and tars of JPEG files as they are, on ranks that are killed and come back as others.

First twenty files of `uint16` tokens behind headers, as many trainers write them: one stream, whose pieces cross from
one file to the next, mapped and never read whole. An epoch is begun on two ranks, and what is left is read by three.
Every piece comes exactly once. Then tars of JPEG files with their labels, grouped by stem: a function decodes a sample
when its batch is formed, and the engine resizes it. A run that stops in mid-epoch goes on with the batch after it.

    python examples/shards.py
"""

import io
import tarfile
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
from PIL import Image

SHARDS, TOKENS, SEQ_LEN, HEADER = 20, 50_000, 256, 1024
TARS, IMAGES, SIDE = 4, 60, 32
RANKS_BEFORE, RANKS_AFTER, STEPS = 2, 3, 100


def write_tokens(folder: Path) -> None:
    """Write shards of tokens, each behind a header: the number of a token is its place in the stream."""
    header = numpy.zeros(HEADER // 4, numpy.int32)
    for shard in range(SHARDS):
        tokens = numpy.arange(shard * TOKENS, (shard + 1) * TOKENS) % 2**16
        (folder / f"tokens_{shard:02}.bin").write_bytes(header.tobytes() + tokens.astype(numpy.uint16).tobytes())


def write_images(folder: Path) -> None:
    """Write tars of JPEG files of many sizes, each with its label beside it."""
    for number in range(TARS):
        with tarfile.open(folder / f"images-{number:03}.tar", "w") as archive:
            for image in range(number * IMAGES, (number + 1) * IMAGES):
                file, size = io.BytesIO(), (SIDE + image % 50, SIDE + image % 37)
                Image.new("RGB", size, (image % 256, 128, 64)).save(file, "jpeg")
                for name, contents in ((f"{image:05}.jpg", file.getvalue()), (f"{image:05}.cls", b"%d" % (image % 10))):
                    member = tarfile.TarInfo(name)
                    member.size = len(contents)
                    archive.addfile(member, io.BytesIO(contents))


def decode(sample: dict[str, bytes]) -> dict[str, Any]:
    """Return the image and the label of a sample."""
    image = Image.open(io.BytesIO(sample["jpg"]))
    image.draft("RGB", (2 * SIDE, 2 * SIDE))  # decodes large photographs at a fraction of their size
    return {"image": numpy.asarray(image.convert("RGB")), "label": int(sample["cls"])}


def read_tokens(folder: Path) -> None:
    """Begin an epoch on some ranks and end it on more; count the pieces."""
    dataset = bl.open(folder / "tokens_*.bin", dtype="uint16", header=HEADER, seq_len=SEQ_LEN)
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "uneven": "short"}

    def loaders(world_size: int) -> list[bl.DataLoader]:
        return [bl.DataLoader(dataset, world_size=world_size, rank=rank, **options) for rank in range(world_size)]

    before = loaders(RANKS_BEFORE)
    pieces = [piece for loader in before for x, _ in islice(loader, STEPS) for piece in x[:, 0].tolist()]
    state = before[0].state_dict()
    after = loaders(RANKS_AFTER)
    for loader in after:
        loader.load_state_dict(state)
        pieces += [piece for x, _ in loader for piece in x[:, 0].tolist()]
    expected = (SEQ_LEN * numpy.arange(len(dataset))) % 2**16
    print(f"{len(dataset)} pieces of {SEQ_LEN} tokens in {SHARDS} shards: {len(pieces)} came")
    print(f"  {RANKS_BEFORE} ranks for {STEPS} steps, then {RANKS_AFTER} to the end of the epoch")
    if sorted(pieces) != sorted(expected.tolist()):
        raise SystemExit("an epoch is every piece once")


def read_images(folder: Path) -> None:
    """Stop in mid-epoch and go on with another loader; compare with an epoch that was never stopped."""

    def loader() -> bl.DataLoader:
        dataset = bl.open(f"{folder}/images-{{000..{TARS - 1:03}}}.tar", fn=decode)
        fields = {"image": bl.Field(slot=bl.Resize(SIDE, SIDE), dtype="float32", scale=1 / 255)}
        return bl.DataLoader(dataset, batch_size=16, shuffle=True, fields=fields)

    whole = [batch["image"].sum() for batch in loader()]
    stopped, resumed = loader(), loader()
    sums = [batch["image"].sum() for batch in islice(stopped, 5)]
    resumed.load_state_dict(stopped.state_dict())
    sums += [batch["image"].sum() for batch in resumed]
    print(f"{TARS * IMAGES} images in {TARS} tars: {len(sums)} batches, 5 of them before a stop")
    if sums != whole:
        raise SystemExit("a run that goes on has the batches of one that never stopped")


def main() -> None:
    """Write files, and read them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokens(folder)
        write_images(folder)
        read_tokens(folder)
        read_images(folder)


if __name__ == "__main__":
    main()
