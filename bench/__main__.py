"""Run one chapter: ``python -m bench rows --scale 0.02``; ``--help`` after the chapter lists its options."""

from __future__ import annotations

import sys
from importlib import import_module

CHAPTERS = (
    "rows", "order", "batching", "collate", "sequences", "windows", "groups", "tokens", "storage", "on_demand",
    "randomness", "mixtures", "balance", "packing", "compare", "migrations", "burn", "device", "resume",
    "forecasting_libraries",
)  # fmt: skip


def main() -> None:
    """Hand the rest of the command line to the chapter that comes first on it."""
    if len(sys.argv) < 2 or sys.argv[1] not in CHAPTERS:
        found = repr(sys.argv[1]) if len(sys.argv) > 1 else "no chapter"
        raise SystemExit(f"found {found}, expected one of: {', '.join(CHAPTERS)}; for example python -m bench rows")
    chapter = sys.argv[1]
    sys.argv[:2] = [f"python -m bench {chapter}"]
    import_module(f"bench.{chapter}.bench").main()


if __name__ == "__main__":
    main()
