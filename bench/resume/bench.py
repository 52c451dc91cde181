"""Kill, resize and resume real runs in each trainer, and count the samples that are lost and repeated.

    python -m bench resume [--only lightning] [--loaders batchloom] [--rules rows] [--output FILE]
    python -m bench resume --join FILE FILE ...

All of it takes half an hour. Parts may be run on their own, one after the other on one machine; ``--join`` makes one
result of their files.

Three epochs of 96 samples on two processes. Two loaders side by side (Lightning's ``CombinedLoader``), and two that
take turns, have 96 samples together. The processes of a run die by SIGKILL one step after a checkpoint, which is
saved in the middle of the second epoch, or at its last batch. A new run goes on from there, with two processes, with
one, and with four. Promises:

- Every process is real, forked from one that imported the trainer; nothing of the first attempt lives on but its files.
- What was trained after the last checkpoint does not count: the model has forgotten it.
- Samples are counted in each epoch, by their numbers, as the model got them. The same order means that each rank gets
  the same batches as in a run that nobody killed.
- Trainers save and load as their guides say; no option was chosen to make a peer fail.
- Where a peer drops what does not fill a step (a hand-made sampler), that is lost in the run that nobody killed, too:
  ``whole`` has its figures.
"""

from __future__ import annotations

import importlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness.command import arguments, wanted
from bench.harness.record import write
from bench.resume import peers
from bench.resume.processes import launch
from bench.resume.run import EVENTS, Run, Verdict, counted, trained, verdict

TRAINERS = ("loop", "lightning", "accelerate", "hf", "ray", "jax")
WORLD, EPOCHS = 2, 3


def steps_of(folder: str) -> list[int]:
    """Return how many steps each epoch of a whole run had."""
    first = trained(folder, 0, saved_only=False)[0]
    return [sum(epoch == wanted for epoch, _ in first) for wanted in range(EPOCHS)]


def measure(trainer: str, loader: str, rule: str, root: Path) -> dict[str, Any]:
    """Run every event of a trainer, a loader and a rule."""
    started = time.perf_counter()
    program = importlib.import_module(f"bench.resume.trainers.{trainer}")
    start = getattr(program, "start", None) or (lambda run: launch(run, program.work))

    def folder(name: str) -> str:
        made = root / f"{trainer}-{loader}-{rule}-{name}"
        made.mkdir(parents=True)
        return str(made)

    def attempt(where: str, **options: Any) -> bool:
        return start(Run(trainer, loader, rule, where, **options))

    whole = folder("whole")
    finished = attempt(whole, world=WORLD, epochs=EPOCHS)
    found = {"whole": text(verdict_of_whole(whole, rule), finished)}
    steps = steps_of(whole)
    killed: dict[float, str] = {}
    for name, share, world in EVENTS:
        if share not in killed:
            killed[share] = folder(f"killed-{share}")
            save_at = steps[0] + max(round(steps[1] * share), 1)
            attempt(killed[share], world=WORLD, epochs=EPOCHS, save_every=save_at, kill_after=save_at)
        resumed = folder(f"{name}-{world}")
        shutil.copytree(killed[share], resumed, dirs_exist_ok=True)
        fine = attempt(resumed, world=world, epochs=EPOCHS, resume=True)
        found[name] = text(verdict(whole, resumed, peers.wanted(rule), EPOCHS), fine)
    print(f"{trainer:10} {loader:10} {rule:8}", f"({time.perf_counter() - started:.0f} s)", flush=True)
    for name, said in found.items():
        print(f"    {name:30} {said}", flush=True)
    return {"trainer": trainer, "loader": loader, "rule": rule, "found": found}


def verdict_of_whole(folder: str, rule: str) -> Verdict:
    """Count what a run trained that nobody killed."""
    return Verdict(*counted(trained(folder, 0, saved_only=False), peers.wanted(rule), EPOCHS), None)


def text(said: Verdict, finished: bool) -> str:
    """Return a cell of the table."""
    return str(said) + ("" if finished else " (the run ended with an error)")


def joined(files: list[str]) -> list[dict[str, Any]]:
    """Return the cases of several files, each beside the commit and the time of its run."""
    found = [json.loads(Path(file).read_text()) for file in files]
    if len(machines := {(part["machine"]["cpu"], part["machine"]["cores"]) for part in found}) > 1:
        raise SystemExit(f"found parts of {len(machines)} machines, expected one")
    cases = [{**case, "taken": part["taken"], "commit": part["commit"]} for part in found for case in part["cases"]]
    names = [(case["trainer"], case["loader"], case["rule"]) for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SystemExit(f"found {sorted(twice)} in several files, expected each once")
    return cases


def main() -> None:
    """Run the chapter."""
    several = {"action": "append"}
    join = {"nargs": "+", "metavar": "FILE", "help": "write the result that is in the files of parts, and run nothing"}
    chosen = arguments(__doc__, TRAINERS, loaders=several, rules=several, join=join)
    if chosen.join:
        files, chosen.join = chosen.join, [Path(file).name for file in chosen.join]
        write("resume", chosen, {"cases": joined(files)}, True)
        return
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for trainer in wanted(chosen, dict.fromkeys(TRAINERS)):
            program = importlib.import_module(f"bench.resume.trainers.{trainer}")
            for loader in chosen.loaders or program.LOADERS:
                for rule in chosen.rules or peers.RULES:
                    if rule in peers.PARTS and rule not in getattr(program, "PARTS", ()):
                        continue
                    if hasattr(program, "skips") and program.skips(loader, rule):
                        continue
                    cases.append(measure(trainer, loader, rule, Path(folder)))
    write("resume", chosen, {"cases": cases}, not (chosen.only or chosen.loaders or chosen.rules))


if __name__ == "__main__":
    main()
