"""The client: packing, `torchq run` against `torchq submit`, calls of `torchq rpc`, followed output, and waits.

One rule: the commands and the package are used as users do, on a stack that the benchmark starts; only packing is
measured inside of this process.
"""

from dataclasses import dataclass

from bench.benchmarks.client import calls, follows, packing, program, starts, waits
from bench.errors import BenchError
from bench.report import Figures
from bench.support import stack
from bench.support.processes import Bench, room
from bench.support.stack import Size
from torchq import Client, TorchqError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    files: int = 1_000
    """The number of files of the tree that is packed."""
    kib: int = 8
    """The KiB of each of them."""
    rounds: int = 9
    """How often each start and each packing is measured."""
    mib: int = 8
    """The MiB that each of the eight pods prints."""
    handles: int = 1_000
    """The number of jobs that are waited for."""
    seconds: float = 3.0
    """The length of each measurement of calls."""


SHORT = Options(files=200, rounds=1, mib=1, handles=50, seconds=0.5)


def run(options: Options) -> Figures:
    """Measure all parts, one after the other. Raises BenchError if one of them fails."""
    try:
        with room() as bench:
            packed = packing.measure(bench.folder / "tree", options.files, options.kib, options.rounds)
        with room(stack.STOP_SECONDS) as bench:
            on_stack = _on_stack(bench, options)
        with room() as bench:
            return {**packed, **on_stack, **waits.measure(bench, options.handles)}
    except TorchqError as error:
        raise BenchError(f"{type(error).__name__}: {error}") from error


def _on_stack(bench: Bench, options: Options) -> Figures:
    """Return what is measured on a whole stack."""
    running = stack.start(bench, Size())
    installed = program.install(bench.folder, running.kubeconfig)
    with installed.on_path(), Client(kubeconfig=running.kubeconfig) as client:
        started = starts.measure(bench, running, installed, client, options.rounds)
        called = calls.measure(running, client, client.jobs()[0].handle, options.seconds)
        followed = follows.measure(bench, running, installed, client, options.mib)
        return {**started, **called, **followed, "log_troubles": running.troubles()}
