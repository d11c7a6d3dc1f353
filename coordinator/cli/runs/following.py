"""Follows a run for its user: why it waits, what its pods print, and how it ends.

One rule: standard output has what the pods print, each line with its pod; everything else goes to standard error.
"""

import json
import threading
from collections.abc import Iterable

import click

from coordinator.cli import output
from coordinator.cli.jobs import reasons
from coordinator.cli.session import Session
from coordinator.follow import endings, logs, waiting
from coordinator.follow.endings import JobEnding
from coordinator.follow.job_feed import JobFeeds
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.present_logs import NoOutput
from crds import timestamps
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest

LET_GO = 130
"""The exit code after Ctrl-C, as that of a program that SIGINT ends."""


def follow(session: Session, key: JobKey) -> int:
    """Print what happens to a job until it ends, and return the exit code: 0 if it succeeded, else 1."""
    with JobFeeds(session.cluster) as feeds:
        stop = threading.Event()
        try:
            lines = logs.follow(
                session.cluster,
                feeds.of(key.namespace),
                key,
                LogSelection(all=True, follow=True),
                stop,
                explain=lambda item: reasons.explain(session, item),
            )
            print_lines(lines)
        except NoOutput as reason:
            if not _has_ended(session, key):
                raise click.ClickException(f"{reason}; it stays: torchq job delete {key.name}") from reason
        finally:
            stop.set()
        [ending] = waiting.wait(feeds, [key])
    click.echo(describe(ending, _run_seconds(session, key)), err=True)
    return 0 if ending.outcome == "Succeeded" else 1


def print_lines(lines: Iterable[LogLine]) -> None:
    """Print lines as they come; a note of torchq only if it says something new."""
    note = ""
    for line in lines:
        if line.pod or line.text != note:
            _print_line(line)
        note = note if line.pod else line.text


def _print_line(line: LogLine) -> None:
    if line.pod:
        click.echo(f"[{line.pod}] {line.text}".encode("utf-8", "replace"))  # whatever the terminal's encoding is
    else:
        click.echo(line.text, err=True)


def _has_ended(session: Session, key: JobKey) -> bool:
    item = _find(session, key)
    return item is None or endings.is_finished(item)


def _find(session: Session, key: JobKey) -> Manifest | None:
    try:
        item = session.cluster.get(TORCHJOBS, key.name, key.namespace)
    except errors.NotFound:
        return None
    return item if item["metadata"]["uid"] == key.uid else None


def _run_seconds(session: Session, key: JobKey) -> float | None:
    """Return how long a job has run; None if it has not, or is gone."""
    status = (_find(session, key) or {}).get("status") or {}
    began, ended = status.get("startTime"), status.get("completionTime")
    return (timestamps.parse(ended) - timestamps.parse(began)).total_seconds() if began and ended else None


def describe(ending: JobEnding, seconds: float | None) -> str:
    """Return the last line: how the job has ended, after how long, and its result or the reason."""
    text = ending.outcome if seconds is None else f"{ending.outcome} in {output.duration(seconds)}"
    if ending.outcome == "Succeeded":
        return f"{text}; result {json.dumps(ending.result)}" if ending.result is not None else text
    return f"{text}: {ending.message}" if ending.message else text
