"""The display of the demo: a live view on a terminal, plain lines elsewhere.

One rule: everything on the display comes from API objects that any user can read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from examples.demo.order import WEIGHTS
from kube.api import Manifest

FINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Moment:
    """The jobs as they are now, and the last line of output of each running one."""

    jobs: Sequence[Manifest]
    lines: Mapping[str, str]
    order: Sequence[str]
    """The queues in the order in which their jobs were admitted so far."""

    def of(self, queue: str) -> list[Manifest]:
        """Return a queue's jobs."""
        return [job for job in self.jobs if job["spec"]["schedulingPolicy"]["queue"] == queue]


def phase(job: Manifest) -> str:
    """Return the job's phase."""
    return str((job.get("status") or {}).get("phase") or "Pending")


class Screen(Protocol):
    """A display of moments."""

    def __enter__(self) -> "Screen": ...

    def __exit__(self, *exception: Any) -> None: ...

    def show(self, moment: Moment) -> None:
        """Display a moment."""

    def say(self, line: str) -> None:
        """Print a line that is not overwritten."""


def make(console: Console) -> Screen:
    """Return the screen that fits the console."""
    return Terminal(console) if console.is_terminal else Lines(console)


@dataclass(slots=True)
class Terminal:
    """Two tables that are redrawn in place."""

    console: Console
    live: Live = field(init=False)

    def __post_init__(self) -> None:
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "Terminal":
        self.live.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.live.stop()

    def show(self, moment: Moment) -> None:
        self.live.update(Group(_queues(moment), _jobs(moment)))

    def say(self, line: str) -> None:
        self.live.console.print(line, highlight=False, markup=False)


@dataclass(slots=True)
class Lines:
    """One line for each change of a job's phase."""

    console: Console
    seen: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *exception: Any) -> None:
        """Do nothing: plain lines need no clean-up."""

    def show(self, moment: Moment) -> None:
        for job in moment.jobs:
            name, now = job["metadata"]["name"], phase(job)
            if self.seen.get(name) != now:
                self.seen[name] = now
                last = moment.lines.get(name, "")
                self.say(f"{name:<4} {now:<10} {last}".rstrip())

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _queues(moment: Moment) -> Table:
    table = Table(title="queues", title_justify="left")
    for column in ("queue", "weight", "waiting", "running", "done", "share", "target"):
        table.add_column(column, justify="left" if column == "queue" else "right")
    for queue, weight in WEIGHTS.items():
        phases = [phase(job) for job in moment.of(queue)]
        done = sum(job_phase in FINAL for job_phase in phases)
        running = sum(job_phase in ("Admitted", "Running") for job_phase in phases)
        share = 100 * moment.order.count(queue) / len(moment.order) if moment.order else 0
        target = 100 * weight / sum(WEIGHTS.values())
        cells = (queue, weight, len(phases) - done - running, running, done, f"{share:.0f}%", f"{target:.0f}%")
        table.add_row(*map(str, cells))
    return table


def _jobs(moment: Moment) -> Table:
    table = Table(title="jobs", title_justify="left")
    for column in ("job", "phase", "last line"):
        table.add_column(column)
    active = [job for job in moment.jobs if phase(job) in ("Admitted", "Running")]
    for job in active:
        name = job["metadata"]["name"]
        table.add_row(name, phase(job), moment.lines.get(name, ""))
    return table
