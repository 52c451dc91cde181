"""Processes that run code of tests: one alone, or a world of ranks that run the same code.

A server that has imported torch and nothing else forks them, which saves each the seconds of importing it.
"""

import json
import multiprocessing
import os
import sys
import textwrap
import time
import traceback
from multiprocessing import forkserver

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["torch.distributed.checkpoint", "torch.distributed.device_mesh"])


def run(code, world_size, arguments, timeout, folder):
    """Run code as all ranks of a world; they have to end well, and in time. Return the JSON that each printed.

    ``folder`` takes what they print.
    """
    worlds = [{"RANK": str(rank), "WORLD_SIZE": str(world_size)} for rank in range(world_size)]
    return [json.loads(out) for out in _outputs(code, arguments, worlds, timeout, folder)]


def run_alone(code, arguments, environment, timeout, folder):
    """Run code as one process; it has to end well, and in time. Return what it printed."""
    return _outputs(code, arguments, [environment], timeout, folder)[0]


def _outputs(code, arguments, environments, timeout, folder):
    """Run code as a process for each environment. Return what each printed."""
    # The processes of one test after another are forked by one server, which starts with the first.
    forkserver.ensure_running()
    outputs = [folder / f"process-{number}" for number in range(len(environments))]
    processes = [
        # The server has the environment of the time at which it started.
        _forks.Process(
            target=_process, args=(textwrap.dedent(code), list(map(str, arguments)), {**os.environ, **more}, output)
        )
        for more, output in zip(environments, outputs, strict=True)
    ]
    end = time.monotonic() + timeout
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(max(0, end - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.join()
    printed = [(output.read_text(), output.with_suffix(".err").read_text()) for output in outputs]
    ends = [process.exitcode for process in processes]
    assert ends == [0] * len(processes), f"they ended with {ends}: {printed}"
    return [out for out, _ in printed]


def _process(code, arguments, environment, output):
    """Run code in this process."""
    for descriptor, path in ((1, output), (2, output.with_suffix(".err"))):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.environ.clear()
    os.environ.update(environment | {"RUST_BACKTRACE": "0"})
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, "<process>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
