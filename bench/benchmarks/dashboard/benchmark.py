"""The dashboard: pages of a large cluster, streams of many readers, and what looking costs a cluster.

One rule: a figure is a multiple of a reference of the same run, or a size that does not depend on the machine.
"""

import random
import re
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from bench.benchmarks.dashboard import scene, tabs
from bench.benchmarks.dashboard.scene import Scene
from bench.benchmarks.dashboard.server import COOKIE, MADE_UP, SECRET
from bench.benchmarks.dashboard.tabs import Browser
from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import manifests, stack
from bench.support.processes import Bench, room
from bench.support.stack import Stack
from coordinator.dashboard import drawing
from coordinator.dashboard.made_pages import MadePage, PageMaker
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from queues.storage import stats

PAGES = ("/", "/jobs")
_NAMESPACE = "default"
_PACKAGE = "bench.benchmarks.dashboard"
_START_SECONDS = 120.0
_FRAME = {"address": "/", "secret": "", "visitor": "", "cluster": "", "links": (), "release": "", "leaves": False}
_READERS = 5
"""The stage of the readers, who end before the servers."""
_REST_SECONDS = 8.0
"""Longer than a dashboard reads on after the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the clusters."""

    jobs: int = option(10_000, "jobs of the large cluster")
    queues: int = option(1_000, "queues of the large cluster")
    changes: int = option(100, "jobs that change each second")
    readers: int = option(200, "readers of one page")
    seconds: float = option(10.0, "the length of a window", least=1)
    rounds: int = option(20, "readings of which each page is made")
    submitted: int = option(40, "jobs whose way to the browser is timed")
    stored: int = option(10_000, "jobs of the real cluster", least=0)


SHORT = Options(jobs=1_000, queues=100, readers=10, seconds=2.0, rounds=3, submitted=3, stored=0)


def run(options: Options) -> Figures:
    """Measure pages, then streams, then a whole cluster. Raises BenchError on failure."""
    with room() as bench:
        figures = of_pages(options) | _of_streams(options, bench)
    with stack.running() as running:
        return figures | _of_cluster(options, running)


# Pages of a made-up cluster, in this process.


def of_pages(options: Options) -> Figures:
    small, large = Scene(100, 10, 1), Scene(options.jobs, options.queues, options.changes)
    times, sent = dict[str, float](), dict[str, float]()
    growth = dict[str, float]()
    for path in PAGES:
        _, small_s, _ = made(small, path, options.rounds)
        reading_s, page_s, messages = made(large, path, options.rounds)
        times |= {f"reading_ms {path}": 1000 * reading_s, f"page_ms {path}": 1000 * page_s}
        growth[path], sent[path] = page_s / small_s, statistics.fmean(map(len, messages))
    jobs, queues = (len(orjson.dumps(each)) for each in large.lists())
    return {
        "page_growth": round(max(growth.values()), 2),
        "page_growth_by_page": {path: round(each, 2) for path, each in growth.items()},
        "times": {name: round(each, 1) for name, each in times.items()},
        "bytes_of_whole_list": round(max(sent["/"] / queues, sent["/jobs"] / jobs), 4),
        "bytes_a_second": {path: round(each) for path, each in sent.items()},
    }


def made(cluster: Scene, path: str, rounds: int) -> tuple[float, float, list[bytes]]:
    """Return the CPU seconds of the first page of a reading, and of another visitor's page of the same reading, as a
    whole document would need it: the lowest of all rounds. And return what a browser is told at each reading."""
    visitor = scene.visitor()
    firsts, others, messages = list[float](), list[float](), list[bytes]()
    shown = cast(MadePage, PageMaker(cast(Any, cluster)).make(visitor, path))
    for _ in range(rounds):
        cluster.step()
        begun = time.thread_time()
        made = cast(MadePage, PageMaker(cast(Any, cluster)).make(visitor, path))
        then = time.thread_time()
        other = cast(MadePage, PageMaker(cast(Any, cluster)).make(scene.visitor(), path))
        drawing.document(other.page, other.drawn, _FRAME)
        others.append(time.thread_time() - then)
        firsts.append(then - begun)
        messages.append(made.message(shown))
        shown = made
    return min(firsts), min(others), messages


# Streams of a made-up cluster, from a server with many readers.


def _of_streams(options: Options, bench: Bench) -> Figures:
    size = map(str, (options.jobs, options.queues, options.changes))
    bench.start_python("pages", f"{_PACKAGE}.server", *size)
    server = _address(bench, "pages")
    browser = Browser(server, f"{COOKIE}=0", SECRET)
    page = browser.page("/")
    first = len(page) + sum(len(browser.page(each.decode())) for each in set(re.findall(rb'"(/static/[^"]+)"', page)))
    ours_s, received = _reading(bench, "pages", server, options)
    message = max(16, round(received / options.readers / options.seconds))
    bench.start_python("bare", f"{_PACKAGE}.bare_stream", str(message))
    bare_s, _ = _reading(bench, "bare", _address(bench, "bare"), options)
    return {
        "cpu_of_bare_stream": round(ours_s / bare_s, 2),
        "stream_share_of_a_core": round(ours_s / options.seconds, 3),
        "bare_share_of_a_core": round(bare_s / options.seconds, 3),
        "first_page_kb": round(first / 1000, 1),
    }


def _address(bench: Bench, name: str) -> str:
    bench.wait_said([name], " .\n")
    return bench.log(name).read_text().rpartition("ready at ")[2].partition(" ")[0]


def _reading(bench: Bench, name: str, server: str, options: Options) -> tuple[float, int]:
    """Return the CPU seconds of a server in a window in which all readers get changes, and the bytes they got. The
    seconds are those of the cheapest of three windows, as other programs can only raise them."""
    readers = f"readers-of-{name}"
    bench.start_python(readers, f"{_PACKAGE}.tabs", server, "/", str(options.readers), stage=_READERS)
    log = bench.log(readers)

    def received() -> int:
        text = log.read_text() if log.exists() else ""
        if "ended" in text:
            raise BenchError(f"a stream has ended{bench.logs()}")
        return int((text.split() or ["0"])[-1])

    bench.wait(received, "the first changes")
    time.sleep(3.0)  # all readers have the whole page
    found = list[tuple[float, int]]()
    for _ in range(3):
        before, cpu = received(), _cpu_seconds(bench, name)
        time.sleep(options.seconds)
        found.append((_cpu_seconds(bench, name) - cpu, received() - before))
    bench.end(_READERS)
    return min(found)


def _cpu_seconds(bench: Bench, name: str) -> float:
    """Return the CPU time of the threads of a server, finer than in ticks of the clock, without that of the made-up
    cluster."""
    threads = Path(f"/proc/{bench.pids()[name]}/task").glob("*/schedstat")
    made_up = re.findall(f"{MADE_UP}(.+)\n", bench.log(name).read_text())
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9 - float(made_up[-1] if made_up else 0)


# A real cluster, and the command that a user runs.


def _of_cluster(options: Options, running: Stack) -> Figures:
    bench, pids = running.bench, running.pids()
    running.cluster.create(TENANT_QUEUES, manifests.queue("team"))
    port = bench.port()
    command = ["dashboard", "--no-open", "-A", "--port", str(port)]
    bench.start_python(
        "dashboard", "coordinator.cli.main", *command, stage=2, environment={"TORCHQ_KUBECONFIG": running.kubeconfig}
    )
    bench.wait_said(["dashboard"], "code=")
    browser = tabs.opened(bench.log("dashboard").read_text().partition(": ")[2].split()[0])
    own, coordinator = bench.pids()["dashboard"], pids["coordinator"]
    time.sleep(_REST_SECONDS)
    idle, unwatched = _shares((own, coordinator), options.seconds)
    with_tab = _Tab(browser, "/jobs")
    _, watched = _shares((own, coordinator), options.seconds)
    delays = [_delay(running, with_tab, f"timed-{number:03}") for number in range(options.submitted)]
    figures: Figures = {
        "idle_share_of_a_core": round(idle, 4),
        "coordinator_share_of_a_core": round(max(0.0, watched - unwatched), 4),
        "delay_of_interval": round(sorted(delays)[int(0.95 * (len(delays) - 1))], 2),
        "delay_s": round(statistics.median(delays), 2),
    }
    if options.stored:
        figures |= _memory(running, options.stored, own, coordinator)
    return figures


class _Tab:
    """A tab that keeps the newest messages of its stream."""

    def __init__(self, browser: Browser, path: str) -> None:
        self._changed = threading.Condition()
        self._text = b""
        self._browser, self._path = browser, path
        threading.Thread(target=self._run, daemon=True).start()

    def wait(self, text: str, seconds: float) -> bool:
        """Return whether a message has a text within some seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: text.encode() in self._text, seconds)

    def _run(self) -> None:
        for message in self._browser.changes(self._path):
            with self._changed:
                self._text = self._text[-(1 << 20) :] + message
                self._changed.notify_all()


def _delay(running: Stack, tab: _Tab, name: str) -> float:
    """Return the seconds from the API server's answer about a new job until a browser is told of it."""
    time.sleep(random.random())  # jobs come at any moment between two comparisons
    running.cluster.create(TORCHJOBS, _held(name), _NAMESPACE)
    begun = time.monotonic()
    if not tab.wait(name, _START_SECONDS):
        raise BenchError(f"no page shows {name}{running.bench.logs()}")
    return time.monotonic() - begun


def _held(name: str) -> dict[str, Any]:
    return manifests.job(name, "team", {"Master": manifests.task()}, schedulingPolicy={"hold": True})


def _memory(running: Stack, count: int, own: int, coordinator: int) -> Figures:
    for number in range(count):
        running.cluster.create(TORCHJOBS, _held(f"stored-{number:05}"), _NAMESPACE)
    running.bench.wait(
        lambda: stats.read(running.redis).leased == 0, "the end of all reconciles", seconds=_START_SECONDS
    )
    time.sleep(_REST_SECONDS)  # a page is made of all jobs meanwhile
    ours, other = map(_resident_mb, (own, coordinator))
    return {"mb_of_coordinator": round(ours / other, 2), "mb": round(ours), "coordinator_mb": round(other)}


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS:"))


def _shares(pids: tuple[int, ...], seconds: float) -> list[float]:
    """Return the share of a core of processes: of three windows the lowest, as other programs can only raise it."""
    windows = []
    for _ in range(3):
        begun, before = time.monotonic(), [*map(stack.cpu_seconds, pids)]
        time.sleep(seconds)
        took = time.monotonic() - begun
        windows.append([(stack.cpu_seconds(pid) - each) / took for pid, each in zip(pids, before, strict=True)])
    return [min(each) for each in zip(*windows, strict=True)]
