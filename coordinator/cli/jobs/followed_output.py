"""The output of jobs as commands print it: the lines as they come, why a job waits, and how a run ends.

One rule: standard output has the output of the pods, and standard error has the messages of torchq about the jobs. An
unfinished state of a line is shown on a terminal only, in one line that the next output replaces. Why a job waits
is best effort: without a coordinator it comes from the status of the job alone.
"""

import contextlib
import json
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator

import click

from coordinator import terminal
from coordinator.cli import api_client, job_ref
from coordinator.cli.session import Session
from coordinator.follow import endings, job_objects, kept_results, logs, wait_reasons
from coordinator.follow.endings import JobEnding
from coordinator.follow.job_feed import JobFeeds
from coordinator.follow.log_lines import LogLine, LogSelection, States
from coordinator.follow.present_logs import NoOutput
from coordinator.follow.waiting import Waits
from coordinator.wording import ages, job_state
from crds import timestamps
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest


def follow(
    session: Session, feeds: JobFeeds, key: JobKey, selection: LogSelection, stop: threading.Event
) -> Iterator[LogLine]:
    """Yield the output of a job (`coordinator.follow.logs.follow`), with its place in the queue while it waits."""
    feed = feeds.of(key.namespace)
    return logs.follow(session.cluster, feed, key, selection, stop, explain=lambda item: explain(session, item))


def states(*, raw: bool) -> States:
    """Return which states of lines to read for standard output."""
    if raw:
        return "all"
    return "newest" if sys.stdout.isatty() else "last"


class LinePrinter:
    """Standard output and standard error, which may be one terminal."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw
        self._has_state = False

    def line(self, text: str, label: str = "", *, is_over: bool = True) -> None:
        """Print a line of a pod after its label, or an unfinished state of a line."""
        if self._raw:
            terminal.write_raw(f"{label}{text}" + ("\n" if is_over else "\r"))
        elif is_over:
            self.clear()
            terminal.write_log_line(label, text)
        else:
            self._has_state = True
            terminal.write_state(f"{label}{text}", shutil.get_terminal_size().columns - 1)

    def note(self, text: str) -> None:
        """Print a message of torchq."""
        self.clear()
        click.echo(terminal.one_line(text), err=True)

    def clear(self) -> None:
        """Erase the state that is shown, since its job has ended or is left."""
        if self._has_state:
            self._has_state = False
            terminal.erase_line()


def explain(session: Session, item: Manifest) -> str:
    """Return why a job waits, and its place in its queue where a coordinator reports the place."""
    item = job_state.without_hold(item)
    reason = wait_reasons.explain(item)
    key = job_ref.key(item)
    place = api_client.ask(session, lambda queries: queries.job(key), lambda _: {})
    if place.get("state") == "admitted":
        return "a worker is about to start it"  # the status, from which the reason comes, is older
    if place.get("state") != "waiting":
        return reason
    if not (item.get("status") or {}).get("queue") and place.get("message") and place["code"] != "New":
        reason = f"{place['message']} ({place['code']})"
    return f"{reason}, number {place['position']} of {place['of']}"


def follow_to_end(session: Session, key: JobKey) -> int:
    """Print the events of a job until it ends, and return the exit code: 0 if it succeeded, else 1."""
    with JobFeeds(session.cluster) as feeds:
        stop = threading.Event()
        try:
            selection = LogSelection(all=True, follow=True, states=states(raw=False))
            print_lines(follow(session, feeds, key, selection, stop))
        except NoOutput as reason:
            is_over = True
            with contextlib.suppress(errors.NotFound):
                is_over = endings.is_finished(job_objects.read(session.cluster, key))
            if not is_over:
                raise click.ClickException(f"{reason}; it stays: torchq job delete {key.name}") from reason
        except KeyboardInterrupt:
            click.echo(f"the job goes on: torchq job logs -f {key.name}; torchq job cancel ends it", err=True)
            raise
        finally:
            stop.set()
        with Waits(feeds, [key]) as waits:
            ending = next(waits)
    click.echo(terminal.one_line(describe(ending, _run_seconds(session, key))), err=True)
    return 0 if ending.outcome == "Succeeded" else 1


def print_lines(lines: Iterable[LogLine]) -> None:
    """Print lines as they come; a note of torchq only if the note is new."""
    note, printer = "", LinePrinter()
    try:
        for line in lines:
            if line.pod:
                printer.line(line.text, f"[{line.pod}] ", is_over=line.is_over)
            elif line.text != note:
                note = line.text
                printer.note(note)
    finally:
        printer.clear()


def _run_seconds(session: Session, key: JobKey) -> float | None:
    """Return how long a job has run; None if it has not, or is gone."""
    status: Manifest = {}
    with contextlib.suppress(errors.NotFound):
        status = job_objects.read(session.cluster, key).get("status") or {}
    began, ended = status.get("startTime"), status.get("completionTime")
    return (timestamps.parse(ended) - timestamps.parse(began)).total_seconds() if began and ended else None


def describe(ending: JobEnding, seconds: float | None) -> str:
    """Return the last line: how the job has ended, after how long, and its result or the reason."""
    text = ending.outcome if seconds is None else f"{ending.outcome} in {ages.duration(seconds)}"
    if ending.outcome == "Succeeded":
        kept = kept_results.find(ending.result)
        result = kept.describe() if kept is not None else json.dumps(ending.result)
        return f"{text}; result {result}" if ending.result is not None else text
    return f"{text}: {ending.message}" if ending.message else text
