"""How many calls a second go through `torchq rpc`, against the same requests without it.

One rule: a call is a whole one, from the method of the client to its value.
"""

import threading
import time
from collections.abc import Callable

from bench.report import Figures
from bench.support.stack import Stack
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from torchq import Client

THREADS = 8


def measure(running: Stack, client: Client, handle: str, seconds: float) -> Figures:
    """Return the rates: calls that ask the API server nothing, calls with one GET, and such a GET alone."""
    namespace, name, uid = handle.split("/")
    key, job = JobKey(namespace, name, uid), client.job(handle)

    def get() -> object:
        return running.cluster.get(TORCHJOBS, key.name, key.namespace)

    return {
        "rpc_bare_calls_per_s": per_second(lambda: client.wait([]), 1, seconds),
        "rpc_calls_per_s": per_second(lambda: job.phase, 1, seconds),
        "rpc_get_per_s": per_second(get, 1, seconds),
        "rpc_calls_per_s_8_threads": per_second(lambda: job.phase, THREADS, seconds),
        "rpc_get_per_s_8_threads": per_second(get, THREADS, seconds),
    }


def per_second(call: Callable[[], object], threads: int, seconds: float) -> int:
    """Return how often some threads together call a function in a second. Raises what a call raises."""
    call()
    counts, failures = [0] * threads, list[Exception]()
    began = time.perf_counter()

    def repeat(number: int) -> None:
        try:
            while time.perf_counter() < began + seconds:
                call()
                counts[number] += 1
        except Exception as error:
            failures.append(error)

    callers = [threading.Thread(target=repeat, args=(number,)) for number in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    if failures:
        raise failures[0]
    return round(sum(counts) / (time.perf_counter() - began))
