"""A run: an idle installation, then load and the board, then the cause of every alert.

One rule: failures are collected and the run continues, so that one failure hides no other failure.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.arena import CLIENTS
from tests.monitoring import board_queries, causes, figures, scaled_rules
from tests.monitoring.causes import Cause
from tests.monitoring.doctor_runs import DoctorRuns
from tests.monitoring.installation import NAMESPACE, WORKERS, Installation
from tests.monitoring.load import LONG, QUICK, TEAM_A, TEAM_B, TEAM_C, Load
from tests.monitoring.prometheus import Prometheus, Target
from tests.monitoring.watch import Row, Watch
from tests.support import ports

IDLE_SECONDS = 12.0
BOARD_SECONDS = 90.0
FIGURES_SECONDS = 30.0
Say = Callable[[str], None]


@dataclass
class Outcome:
    """The result of a run."""

    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def play(folder: Path, alerts: Collection[str], say: Say) -> Outcome:
    """Play one run in a folder, with the causes of these alerts. If no alert is named, all causes are made."""
    outcome = Outcome()
    with _running(folder, say) as (site, prometheus):
        load = Load(site)
        watch = Watch(site, prometheus, load, say, outcome.rows)
        load.is_quiet = True
        outcome.wrong += _idle(watch)
        outcome.wrong += _board(watch)
        outcome.wrong += _check_pages(site)
        for group in causes.GROUPS:
            if chosen := [cause for cause in group if not alerts or cause.alert in alerts]:
                watch.play(chosen)
        say("waiting for the alerts that look back far")
        outcome.wrong += [f"{name} fires at the end" for name in watch.settle()]
        outcome.wrong += prometheus.rules_that_fail()
    outcome.wrong += [problem for row in outcome.rows if (problem := _problem(row))]
    return outcome


@contextlib.contextmanager
def _running(folder: Path, say: Say) -> Iterator[tuple[Installation, Prometheus]]:
    """Start everything, and stop it at the end of the block."""
    site = Installation(folder)
    doctor = DoctorRuns(NAMESPACE, site.doctor_agrees)
    try:
        say("starting an API server, Redis, a node, two coordinators and two workers")
        site.start()
        with ports.reserve() as port:
            targets = [*site.targets, Target("kube-state-metrics", NAMESPACE, doctor.port)]
            prometheus = Prometheus(folder / "prometheus", port, scaled_rules.scaled(), targets)
            site.torchq("status")  # the process that forks commands is started by this thread
            doctor.start()
            site.start_beside("prometheus", prometheus.command)
            site.until(prometheus.is_ready, "Prometheus")
            site.until(lambda: not prometheus.targets_down() and prometheus.query("torchq_workers > 1"), "all targets")
            yield site, prometheus
    finally:
        doctor.stop()
        for problem in site.stop():
            say(problem)


def _idle(watch: Watch) -> list[str]:
    """Return the alerts that fire while nothing happens."""
    watch.say(f"idle for {IDLE_SECONDS:.0f} s")
    until, fired = time.monotonic() + IDLE_SECONDS, set[str]()

    def look() -> bool:
        fired.update(watch.prometheus.firing())
        return time.monotonic() > until

    watch.wait(look, 2 * IDLE_SECONDS)
    return [f"{name} fires on an idle installation" for name in sorted(fired)]


def _board(watch: Watch) -> list[str]:
    """Make load. Return the queries of the board without data, and the figures that differ."""
    watch.say("load: queues, jobs that end, fail, are sent back, are held, run long")
    load, site, prometheus = watch.load, watch.site, watch.prometheus
    load.create_queues()
    for number in range(5):
        load.submit(f"long-a-{number}", TEAM_A, LONG)
    load.submit("long-b-0", TEAM_B, LONG)
    load.submit("short-c-0", TEAM_C, ["sleep", "2"], cpu="100m")
    load.submit("fails", QUICK, ["false"], cpu="100m", policy="OnFailure", backoffLimit=1)
    load.submit("held", QUICK, ["true"], cpu="100m")
    site.torchq("job", "hold", "held")
    load.is_quiet = False
    with site.refused(WORKERS):
        watch.wait(lambda: prometheus.value("sum(workqueue_retries_total)"), BOARD_SECONDS)
    site.lose_queues()
    watch.wait(lambda: load.status("fails").get("phase") == "Failed", BOARD_SECONDS)
    load.submit_unschedulable("sent-back")
    watch.wait(lambda: prometheus.value("sum(torchq_jobs_sent_back_total)"), BOARD_SECONDS)
    load.delete("sent-back")
    empty: list[str] = []

    def look() -> bool:
        empty[:] = board_queries.without_data(watch.prometheus)
        return not empty

    watch.wait(look, BOARD_SECONDS)
    count = sum(1 for _ in board_queries.queries(board_queries.load()))
    watch.say(f"board: {count - len(empty)} of {count} queries return data")
    return [f"no data on the board: {each}" for each in empty] + _figures(watch)


def _figures(watch: Watch) -> list[str]:
    """Return the differences between the metrics and `torchq queue list` while nothing changes."""
    watch.load.is_quiet = True
    wrong: list[str] = []
    compared = 0

    def look() -> bool:
        nonlocal compared
        listed = json.loads(watch.site.torchq("queue", "list", "-o", "json"))
        queues = listed["items"] if isinstance(listed, dict) else listed
        compared = len(queues)
        wrong[:] = figures.differences(watch.prometheus, queues)
        return not wrong

    watch.wait(look, FIGURES_SECONDS)
    watch.load.is_quiet = False
    watch.say(f"figures: {compared} queues, {len(wrong)} differ from torchq queue list -o json")
    return wrong


def _check_pages(site: Installation) -> list[str]:
    """Return the output of `promtool check metrics` about the pages."""
    wrong = []
    for name in CLIENTS:
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=site.page(name), capture_output=True, text=True, check=False
        )
        if checked.returncode:
            wrong.append(f"promtool check metrics, {name}: {checked.stdout}{checked.stderr}")
    return wrong


def _problem(row: Row) -> str:
    if row.is_early:
        return f"{row.cause.alert} fired before its cause was made"
    if row.fired is None:
        return f"{row.cause.alert} has not fired: {row.cause.text}"
    return "" if row.resolved is not None else f"{row.cause.alert} has not resolved"


def every_alert() -> list[Cause]:
    """Return all causes."""
    return [cause for group in causes.GROUPS for cause in group]
