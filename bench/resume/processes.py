"""Start the ranks of a run as real processes, forked from one that has imported the trainer already, and wait."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

# An optimizer imports it when it is made, for seconds: once here, rather than in every process.
import torch._dynamo  # noqa: F401

from bench.resume.run import Run, environment, free_port

# Seconds after which a run that does not end is taken for one that hangs.
PATIENCE = 90


def launch(run: Run, work: Callable[[Run, int], None], patience: float = PATIENCE) -> bool:
    """Run ``work`` on each rank in a process of its own; return whether all ended by themselves, without an error.

    When one dies, those that wait for it are killed too, as a cluster does.
    """
    port = free_port()
    ranks = {_fork(run, rank, port, work): rank for rank in range(run.world)}
    fine, deadline = True, time.monotonic() + patience
    while ranks:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            if time.monotonic() > deadline:
                fine = False
                _kill(ranks)
            time.sleep(0.02)
            continue
        if process in ranks:
            del ranks[process]
            if status != 0:
                fine = False
                # Ranks that die at the same step do so by themselves.
                deadline = min(deadline, time.monotonic() + 3)
    return fine


def _kill(processes: dict[int, int]) -> None:
    for process in processes:
        os.kill(process, signal.SIGKILL)


def _fork(run: Run, rank: int, port: int, work: Callable[[Run, int], None]) -> int:
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.environ.update(environment(rank, run.world, port))
        out = os.open(Path(run.folder) / f"output-{run.attempt}-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        work(run, rank)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
