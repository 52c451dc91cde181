"""Work through parts under a clock: one visit to a machine that is lent for minutes.

Promises:

- Parts run in their order of value, each in a process of its own: what a part breaks or leaves behind touches no other
  part. A part begins if its estimate fits into the rest of the time; else it is left for the next visit.
- The file is complete after each part. A visit that is killed keeps the parts that ended.
- A part that fails is recorded with its traceback, and the next part runs. A part that takes more than twice its
  estimate on a GPU is stopped; on the CPU it may take all the time that is left.
- A part that the file has as done at this commit, of this device and size, is not run again.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench.device.place import Found, Place
from bench.harness.claims import Claim

DONE, FAILED, LEFT = "done", "failed", "left"
# A part may take twice its estimate and these seconds; the visit keeps the last seconds for its own work.
GRACE, RESERVE = 15.0, 4.0


@dataclass(frozen=True)
class Part:
    """A part of the chapter.

    Attributes:
        measure: Measures on a place.
        estimate: The seconds that it takes on a GPU.
        on_cpu: The seconds that it takes where the CPU stands in.
        packages: The packages that it needs beside torch and NumPy.
        memory: The bytes of the device that it needs.
        long: True where it fills all the time that is left, and goes on in the next visit.
    """

    measure: Callable[[Place], Found]
    estimate: float
    on_cpu: float = 3.0
    packages: tuple[str, ...] = ()
    memory: float = 4e9
    long: bool = False


@dataclass(frozen=True)
class Visit:
    """One visit.

    Attributes:
        parts: The parts by name, in their order of value.
        place: The device, without its clock.
        file: The file of results, which may hold those of earlier visits.
        head: What the results are of: the device, the commit, the size.
        until: The time of ``time.monotonic`` at which the visit ends.
        kept: The folder of what long parts keep from visit to visit.
        is_gpu: False where the CPU stands in.
    """

    parts: Mapping[str, Part]
    place: Callable[..., Place]
    file: Path
    head: dict[str, Any]
    until: float
    kept: Path
    is_gpu: bool

    def run(self, names: Sequence[str]) -> dict[str, Any]:
        """Run the parts that are not done and fit into the time; return their records."""
        records = self.earlier()
        for name in names:
            part, known = self.parts[name], records.get(name, {})
            if known.get("status") == DONE:
                print(f"{name}: done at this commit", flush=True)
                continue
            estimate, rest = part.estimate if self.is_gpu else part.on_cpu, self.until - time.monotonic() - RESERVE
            if estimate > rest:
                records[name] = known or {"status": LEFT, "seconds": 0.0, "estimate": estimate, "ratios": {}}
                records[name]["commit"] = self.head["commit"]
                print(f"{name}: left: it takes {estimate:.0f} s, and {max(rest, 0):.0f} s remain", flush=True)
            else:
                print(f"\n## {name}: {rest:.0f} s remain", flush=True)
                most = min(rest, 2 * estimate + GRACE) if self.is_gpu and not part.long else rest
                records[name] = self._take(name, part, most)
                self._print(name, records[name])
            self.write(records)
        return records

    def earlier(self) -> dict[str, Any]:
        """Return the records of earlier visits at this commit, of this device and size."""
        if not self.file.exists():
            return {}
        known = json.loads(self.file.read_text())
        if any(known.get(name) != self.head[name] for name in ("device", "arguments")):
            return {}
        return {name: each for name, each in known["parts"].items() if each.get("commit") == self.head["commit"]}

    def write(self, records: dict[str, Any]) -> None:
        """Write the file, whole at every moment."""
        body = {**self.head, "parts": records}
        with tempfile.NamedTemporaryFile("w", dir=self.file.parent, delete=False) as file:
            json.dump(body, file, indent=1)
            file.write("\n")
        os.chmod(file.name, 0o644)
        os.replace(file.name, self.file)

    def _take(self, name: str, part: Part, seconds: float) -> dict[str, Any]:
        """Run a part in a process of its own; return its record."""
        start = time.monotonic()
        place = partial(self.place, until=start + seconds, kept=self.kept)
        found = elsewhere(partial(measure, part, place), seconds + RESERVE / 2)
        taken = {"seconds": round(time.monotonic() - start, 1), "estimate": part.estimate, "taken": now()}
        return {"status": FAILED, "ratios": {}, **found, **taken, "commit": self.head["commit"]}

    def _print(self, name: str, record: dict[str, Any]) -> None:
        line = f"{name}: {record['status']} in {record['seconds']:.0f} s"
        print(f"{line}: {record['failure']}" if record.get("failure") else line, flush=True)


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def measure(part: Part, place: Callable[[], Place]) -> dict[str, Any]:
    """Measure a part; return its record."""
    missing = [name for name in part.packages if importlib.util.find_spec(name) is None]
    if missing:
        return {"status": FAILED, "failure": f"{', '.join(missing)} is not installed; expected it for this part"}
    there = place()
    if reason := too_little(part, there):
        return {"status": FAILED, "failure": reason}
    found = part.measure(there)
    status = FAILED if found.failure else DONE if found.ended else LEFT
    claims = [recorded(there, claim) for claim in found.claims]
    ratios = {claim["text"]: claim["measured"] for claim in claims} | dict(found.ratios)
    record = {"status": status, "ratios": ratios, "claims": claims, "body": found.body}
    return record | ({"failure": found.failure} if found.failure else {})


def too_little(part: Part, place: Place) -> str | None:
    """Return why the memory of the device does not suffice, if it does not."""
    if not place.is_gpu:
        return None
    import torch

    free, _ = torch.cuda.mem_get_info(place.device)
    if free >= part.memory:
        return None
    return f"the device has {free / 1e9:.1f} GB free; expected {part.memory / 1e9:.0f} GB for this part"


def recorded(place: Place, claim: Claim) -> dict[str, Any]:
    """Return the JSON's record of a figure: on the CPU there is no number to reach."""
    if place.is_gpu:
        return claim.record()
    return {"text": claim.text, "measured": claim.measured, "best": claim.best}


def elsewhere(work: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Do the work in a fork of this process, which has imported torch and used no device; return what it found."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        process = multiprocessing.get_context("fork").Process(target=_answer, args=(work, answer))
        process.start()
        process.join(seconds)
        overran = process.is_alive()
        _end(process)
        if answer.exists():
            return json.loads(answer.read_text())
    if overran:
        return {"failure": f"it was stopped after {seconds:.0f} s"}
    return {"failure": f"its process ended with {process.exitcode}"}


def _answer(work: Callable[[], dict[str, Any]], answer: Path) -> None:
    """Write what was found, or the traceback."""
    os.setsid()
    try:
        found = work()
        text = json.dumps(found)
    except BaseException as error:
        lines = traceback.format_exc().strip().splitlines()
        said = str(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        text = json.dumps({"failure": said[:500], "traceback": lines[-60:]})
        if not isinstance(error, SystemExit):
            print("\n".join(lines[-60:]), flush=True)
    part = answer.with_suffix(".part")
    part.write_text(text)
    part.replace(answer)


def _end(process: Any) -> None:
    """End a process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.join()
