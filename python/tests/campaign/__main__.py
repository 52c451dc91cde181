"""Run the campaign: python -m campaign [minutes] [seed]; see scripts/campaign."""

import argparse
import sys
import time
import warnings

from campaign import chunk_mixtures, chunks, configurations, draws, faults, soak
from campaign.tally import FindingError, Tally, save

# The parts, and the share of the time that each takes.
PARTS = {
    "faults": (faults, 0.25),
    "configurations": (configurations, 0.3),
    "draws": (draws, 0.1),
    "chunks": (chunks, 0.1),
    "chunk_mixtures": (chunk_mixtures, 0.1),
    "soak": (soak, 0.15),
}


def main():
    """Run the parts, and print what they counted and found."""
    parser = argparse.ArgumentParser(prog="scripts/campaign", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first configuration, draw or fault (not of soak)"
    )
    parser.add_argument("--most", type=int, help="how many of them, whatever the time")
    parser.add_argument("--output", help="a file of JSON, to which the counts are added")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = given.only or list(PARTS)
    total = sum(PARTS[part][1] for part in chosen)
    records, found = {}, 0
    for part in chosen:
        module, share = PARTS[part]
        tally = Tally(part, given.minutes * 60 * share / total)
        try:
            module.campaign(tally, given.seed, given.first, given.most)
        except FindingError as finding:
            found += 1
            tally.facts["finding"] = str(finding)
            print(f"\n{finding}\n", file=sys.stderr)
        records[part] = tally.record()
        print(f"{tally}; seed {given.seed}", flush=True)
    if given.output:
        save(given.output, records, given.seed)
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
