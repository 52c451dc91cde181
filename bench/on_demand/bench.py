"""Measure batches that are made when they are asked for, beside peers.

    python -m bench on_demand [--only sparse] [--rounds 5] [--scale 0.1] [--output FILE]

Each part is a module of this folder, which says what it measures.
"""

from __future__ import annotations

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write
from bench.on_demand import cast, functions, hugging_face, images, resize, sparse

PARTS = {
    "images": images.measure,
    "functions": functions.measure,
    "resize": resize.measure,
    "cast": cast.measure,
    "sparse": sparse.measure,
    "hugging_face": hugging_face.measure,
}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    cases = [case for measure in wanted(chosen, PARTS).values() for case in measure(chosen.scale, chosen.rounds)]
    write("on_demand", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
