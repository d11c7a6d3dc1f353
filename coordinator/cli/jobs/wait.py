"""`torchq job wait`: waits for the end of jobs, or until they run.

One rule: the exit code says what happened, so that a script needs no output: 0 all is well, 1 a job has failed or is
gone, 124 the time was over (as for `timeout`), 130 Ctrl-C. The jobs continue, whatever the command does.
"""

import click

from coordinator import terminal
from coordinator.cli import job_ref
from coordinator.cli.jobs import selected
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.session import Session, pass_session
from coordinator.follow.endings import PHASES, Goal, JobEnding
from coordinator.follow.job_feed import JobFeeds
from coordinator.follow.waiting import Waits
from crds.keys import JobKey
from kube import errors

TIMED_OUT = 124


@click.command()
@selected.jobs_argument
@click.option(
    "--for",
    "goal",
    type=click.Choice(list(PHASES), case_sensitive=False),
    default="Finished",
    show_default=True,
    help="what to wait for; the end of a job ends every wait",
)
@click.option("--any", "first", is_flag=True, help="wait for the first of the jobs only")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="the longest wait")
@pass_session
def wait(session: Session, jobs: JobChoice, goal: Goal, first: bool, timeout: float | None) -> None:
    """Wait for jobs to end, or to run.

    Prints a line for each job as it comes to its end. Exit code 0: all jobs have succeeded, or have reached what was
    waited for. 1: a job has failed, or was cancelled or deleted. 124: the time is over. 130: Ctrl-C.

    \b
    torchq job wait train-x7k2p --timeout 3600
    torchq job wait -l sweep=lr --any
    torchq job wait train-x7k2p --for Running && torchq job logs train-x7k2p
    """
    with JobFeeds(session.cluster) as feeds:
        keys = _keys(session, feeds, jobs)
        with Waits(feeds, keys, goal=goal, timeout=timeout) as waits:
            ends = _take(waits, first)
        if waits.waiting and not (first and ends):
            waiting = ", ".join(f"{key.namespace}/{key.name}" for key in waits.waiting[:5])
            more = f" and {len(waits.waiting) - 5} more" if len(waits.waiting) > 5 else ""
            click.echo(f"the time is over; still waiting: {waiting}{more}", err=True)
            raise SystemExit(TIMED_OUT)
    raise SystemExit(0 if all(each.reaches(goal) for each in ends) else 1)


def _take(waits: Waits, first: bool) -> list[JobEnding]:
    ends = []
    for ending in waits:
        ends.append(ending)
        message = f": {ending.message}" if ending.message else ""
        click.echo(terminal.one_line(f"{ending.key.namespace}/{ending.key.name} {ending.outcome}{message}"))
        if first:
            break
    return ends


def _keys(session: Session, feeds: JobFeeds, jobs: JobChoice) -> list[JobKey]:
    """Return the keys of the jobs. Names are looked up in the watch, so that a thousand names cost one request."""
    jobs.check()
    if jobs.selector:
        return [job_ref.key(item) for item in jobs.select(session)]
    return [_key(feeds, *job_ref.parse(session, name)) for name in dict.fromkeys(jobs.names)]


def _key(feeds: JobFeeds, namespace: str, name: str, uid: str) -> JobKey:
    if uid:
        return JobKey(namespace, name, uid)
    found = feeds.of(namespace).find(name)
    if found is None:
        raise errors.NotFound(f"there is no job {namespace}/{name}")
    return job_ref.key(found)
