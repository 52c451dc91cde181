"""Worlds of processes, each a rank that runs the same code.

They are forked by a server that has imported torch and nothing else, which saves each the seconds of importing it.
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
    # The processes of one world after another come from one server, which starts with the first.
    forkserver.ensure_running()
    outputs = [folder / f"rank-{rank}" for rank in range(world_size)]
    processes = [
        _forks.Process(target=_rank, args=(textwrap.dedent(code), list(map(str, arguments)), rank, world_size, output))
        for rank, output in enumerate(outputs)
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
    assert ends == [0] * world_size, f"they ended with {ends}: {printed}"
    return [json.loads(out) for out, _ in printed]


def _rank(code, arguments, rank, world_size, output):
    """Run code as a rank."""
    for descriptor, path in ((1, output), (2, output.with_suffix(".err"))):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, f"<rank {rank}>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
