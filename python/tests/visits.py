"""Runs of the bench of devices, forked by a process that has imported what they import: seconds for each of them."""

import contextlib
import gc
import io
import os
import signal
import sys
import traceback
from importlib import import_module
from multiprocessing import Pipe, get_context
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What the bench imports, and what its parts would import in processes of their own, each again.
IMPORTED = (
    "bench.device.bench",
    "torch._dynamo",
    "transformers.models.autoformer.modeling_autoformer",
    "transformers.models.informer.modeling_informer",
    "transformers.models.patchtst.modeling_patchtst",
    "transformers.models.time_series_transformer.modeling_time_series_transformer",
)
BENCH = "from bench.device import bench; bench.main()"


class Visits:
    """A process that forks another one for each run."""

    def __init__(self):
        self._ours, theirs = Pipe()
        # Its runs start processes, and so it is no daemon: `close` ends it.
        self._server = get_context("forkserver").Process(target=_serve, args=(theirs, _environment()))
        self._server.start()
        theirs.close()

    def start(self, words, output, code=BENCH):
        """Start a run with the words of a command line, which prints into a file; return its process id."""
        self._ours.send((words, output, code))
        return self._ours.recv()

    def wait(self):
        """Return the exit code of the run that was started."""
        return self._ours.recv()

    def close(self):
        """End the process."""
        self._ours.close()
        self._server.join(10)
        self._server.kill()
        self._server.join()


def kill(process):
    """Kill a run and the process of its part."""
    os.killpg(process, signal.SIGKILL)


def _environment():
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}


def _serve(orders, environment):
    """Fork a process for each order."""
    os.chdir(ROOT)
    os.environ.update(environment)
    sys.path.insert(0, str(ROOT))
    for name in IMPORTED:
        with contextlib.redirect_stderr(io.StringIO()):
            import_module(name)
    sys.modules["torch"].set_num_threads(1)
    # Parts collect garbage before each candidate: a search of all that was imported takes a tenth of a second.
    gc.freeze()
    with contextlib.suppress(EOFError):
        while True:
            words, output, code = orders.recv()
            process = os.fork()
            if process == 0:
                os._exit(_run(words, output, code))
            orders.send(process)
            orders.send(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def _run(words, output, code):
    """Run code in this process; return its exit code."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.argv = ["bench", *words]
    status = 1
    try:
        exec(compile(code, "<visit>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return status
