"""`torchq job scale`: changes the number of workers of an elastic job.

One rule: every change is one of numTasks. A number is written by the scale subresource; `+K`, `-K` and `--pods` create
a request that a worker carries out. While a job holds no room, or is suspended, `+K` and `-K` are numbers, too.
"""

import contextlib
import re
import time
from dataclasses import dataclass
from typing import Any, Literal

import click

from coordinator.cli import job_ref
from coordinator.cli.change_options import ChangeOptions, author, change_options
from coordinator.cli.jobs import selected
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.session import Session, pass_session
from coordinator.control import job_changes
from coordinator.errors import CoordinatorError
from coordinator.follow import wait_reasons
from coordinator.looks import looks
from coordinator.wording import job_state
from crds import scale_request
from crds.api_resources import TORCHJOBS
from crds.torchjob.tasks import WORKER
from kube import errors
from kube.api import Manifest

_LOOK_SECONDS = 0.2
_SPARE_SECONDS = 30.0
"""How much longer the command waits than the request may take: a worker reports the end of the request a bit later."""


class ScaleFailed(CoordinatorError):
    """The job has not got the size. The message says why and what holds now."""


@dataclass(frozen=True, slots=True)
class Size:
    """A size as a user writes it: the number of workers, or a number to add or remove."""

    change: Literal["", "+", "-"]
    count: int


def parse_size(text: str) -> Size:
    """Return the size that an argument gives: N, +K or -K. Raises UsageError for any other text."""
    context = click.get_current_context()
    found = re.fullmatch(r"([+-]?)([0-9]{1,9})", text)
    if found is None and text.startswith("-"):
        raise click.NoSuchOption(text, ctx=context)
    if found is None:
        raise click.BadParameter(f"{text!r} is neither a number of workers nor a change, as in 4, +2 or -2", context)
    change: Any = found[1]
    return Size(change, int(found[2]))


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """The arguments of the command."""

    size: Size | None
    pods: list[str]
    """The workers to remove, instead of a size."""
    wait: bool
    timeout: int
    change: ChangeOptions


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asks for: a number of workers, or a request."""

    workers: int
    """The number of workers that the job is to have."""
    request: Manifest | None = None
    text: str = ""


# An argument such as -2 looks like an option to click.
@click.command(context_settings={"ignore_unknown_options": True})
@selected.jobs_argument
@click.option("--pods", default="", metavar="NAME,..", help="remove exactly these workers, instead of a number")
@click.option("--wait", is_flag=True, help="wait until the job has the size, or until that has failed")
@click.option(
    "--timeout",
    type=click.IntRange(1, 86_400),
    default=600,
    show_default=True,
    help="seconds after which +K, -K and --pods have failed, and the longest wait",
)
@selected.anyway_option
@change_options
@pass_session
def scale(
    session: Session, jobs: JobChoice, pods: str, wait: bool, timeout: int, anyway: bool, change: ChangeOptions
) -> None:
    """Change the number of workers of jobs.

    The last argument is the size. N is the new number. +K adds workers, all or none: if they do not all run in time,
    those that were added go again. -K removes workers, and --pods removes the named ones. The other workers keep
    running.
    """
    workers = [name for name in pods.split(",") if name]
    size, given = None, len(jobs.names) + bool(jobs.selector)
    if given != 1 if workers else given < 2:
        raise click.UsageError("say either a size, as in 4, +2 or -2, or --pods with the workers of one job to remove")
    if not workers:
        size = parse_size(jobs.names[-1])
        jobs = JobChoice(jobs.names[:-1], jobs.selector)
    for name in jobs.names:
        if name.startswith("-"):
            raise click.NoSuchOption(name, ctx=click.get_current_context())
    request = ScaleRequest(size, workers, wait, timeout, change)
    jobs.for_each(
        session,
        lambda item: _scale(session, item, request),
        prepare=lambda items: _check_growth(session, items, request, anyway),
    )


def _check_growth(session: Session, items: list[Manifest], wanted: ScaleRequest, anyway: bool) -> list[Manifest]:
    """Return jobs as they are. Raises NeverRuns if one of those that are to grow could never run then."""
    grown = []
    for item in items:
        with contextlib.suppress(errors.Conflict):  # what cannot be scaled is refused for that job alone
            wish = _wish(item, wanted.size, wanted.pods, wanted.timeout)
            _refuse_early(item, wish)
            if wish.workers > _workers(item):
                tasks = item["spec"]["torchTaskSpecs"]
                resized = {**tasks, WORKER: {**tasks[WORKER], "numTasks": wish.workers}}
                grown.append({**item, "spec": {**item["spec"], "torchTaskSpecs": resized}})
    size = "" if wanted.size is None else f"{wanted.size.change}{wanted.size.count}"
    selected.check_change(session, grown, f"scale to {size}", ("scales", "scaled"), anyway=anyway)
    return items


def _scale(session: Session, item: Manifest, wanted: ScaleRequest) -> None:
    change, timeout, dry_run = wanted.change, wanted.timeout, wanted.change.dry_run
    wish = _wish(item, wanted.size, wanted.pods, timeout)
    _refuse_early(item, wish)
    # The API server knows the bounds of the job. A request is stored whatever it says, so its size is tried first.
    _set_workers(session, item, wish.workers, dry_run=dry_run or wish.request is not None)
    request = None if wish.request is None else _create(session, item, wish.request, dry_run)
    named = f" ({request['kind']} {request['metadata'].get('name', '')})" if request and not dry_run else ""
    author(session, change).report(item, "JobScaled", f"job {job_state.display_name(item)} {wish.text}{named}")
    if wanted.wait and not dry_run:
        click.echo(_wait(session, item, wish.workers, timeout) if request is None else _follow(session, item, request))


def _wish(item: Manifest, size: Size | None, names: list[str], timeout: int) -> Wish:
    now, spec = _workers(item), {"timeoutSeconds": timeout}
    job = item["metadata"]["name"]
    if size is None:
        body = scale_request.manifest("ScaleIn", job, toDelete={"podNames": names}, **spec)
        return Wish(now - len(names), body, f"to lose {', '.join(names)}")
    if size.change and size.count == 0:
        raise click.UsageError("a change by 0 workers changes nothing")
    workers = {"+": now + size.count, "-": now - size.count}.get(size.change, size.count)
    text = f"from {now} to {workers} workers"
    if not size.change or _may_have_no_workers(item):
        return Wish(workers, None, f"scaled {text}")
    if size.change == "+":
        body = scale_request.manifest("ScaleOut", job, toAdd={"count": size.count}, **spec)
        return Wish(workers, body, f"to grow {text}")
    body = scale_request.manifest("ScaleIn", job, toDelete={"count": size.count}, **spec)
    return Wish(workers, body, f"to shrink {text}")


def _may_have_no_workers(item: Manifest) -> bool:
    """Return whether a new size is one for later: there is nothing to add to, or to remove."""
    return bool(item["spec"].get("suspend")) or not job_state.is_admitted(item)


def _refuse_early(item: Manifest, wish: Wish) -> None:
    """Raise Conflict for a job that cannot be scaled; the API server refuses the other cases with its own words."""
    job_changes.refuse_finished(item)
    name, spec = job_state.display_name(item), item["spec"]
    if ranks := wait_reasons.for_ranks(item):
        raise errors.Conflict(f"job {name} keeps its number of workers until it ends: {ranks}")
    if WORKER not in spec["torchTaskSpecs"]:
        # The API server has no words for it: its scale subresource reads a field that is not there.
        raise errors.Conflict(f"job {name} has no task Worker, whose number of pods is the size of a job")
    policy = spec.get("torchElasticPolicy") or {}
    for field, is_beyond in (("numMaxReplicas", int.__gt__), ("numMinReplicas", int.__lt__)):
        bound = policy.get(field)
        if bound is not None and is_beyond(wish.workers, bound):
            bounds = f"its torchElasticPolicy.{field} is {bound}"
            raise errors.Conflict(f"job {name} cannot have {wish.workers} workers: {bounds}")
    if wish.request is None:
        return
    if spec.get("torchElasticPolicy") is None:
        raise errors.Conflict(f"job {name} is not elastic: it has no spec.torchElasticPolicy")
    if _may_have_no_workers(item):
        which = "is suspended" if spec.get("suspend") else "waits, and has no pods"
        raise errors.Conflict(f"job {name} {which}: torchq job scale {name} N sets its size for later")


def _workers(item: Manifest) -> int:
    """Return the number of workers that a job wants now."""
    worker = item["spec"]["torchTaskSpecs"].get(WORKER)
    return 0 if worker is None else int(worker.get("numTasks", 1))


def _set_workers(session: Session, item: Manifest, workers: int, *, dry_run: bool) -> None:
    metadata = item["metadata"]
    # The uid keeps the number from a later job of the same name.
    session.cluster.patch(
        TORCHJOBS,
        metadata["name"],
        {"metadata": {"uid": metadata["uid"]}, "spec": {"replicas": workers}},
        metadata["namespace"],
        subresource="scale",
        dry_run=dry_run,
    )


def _create(session: Session, item: Manifest, body: Manifest, dry_run: bool) -> Manifest:
    """Create a request. Creation times are in whole seconds, so requests of one second go by their names."""
    resource, milliseconds = scale_request.RESOURCES[body["kind"]], time.time_ns() // 10**6
    named = {**body, "metadata": {"generateName": f"{item['metadata']['name']}-{milliseconds:x}-"}}
    return session.cluster.create(resource, named, item["metadata"]["namespace"], dry_run=dry_run)


def _wait(session: Session, item: Manifest, workers: int, timeout: float) -> str:
    """Wait until the job has that number of workers, and return what to say."""
    name = job_state.display_name(item)
    for _ in looks(timeout, _LOOK_SECONDS):
        item = job_ref.find(session, str(job_ref.key(item)))
        if job_state.is_finished(item):
            raise ScaleFailed(f"job {name} has finished before it had {workers} workers")
        if _workers(item) != workers:
            raise ScaleFailed(f"job {name} wants {_workers(item)} workers now: somebody else has changed its size")
        if not job_state.is_admitted(item):
            return f"job {name} holds no room now; it wants {workers} workers from its next admission on"
        status = item["status"]
        granted = status["admission"].get("workers") or workers
        has_more = granted > workers and granted == (status.get("target") or {}).get("workers")
        is_observed = status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)
        if (granted == workers or has_more) and not status.get("scaling") and is_observed:
            more = f", and {granted - workers} more while nobody else can use their room" if has_more else ""
            return f"job {name} has {workers} workers{more}"
        if ranks := wait_reasons.for_ranks(item):
            raise ScaleFailed(f"job {name} keeps its {granted} workers until it ends: {ranks}")
    raise ScaleFailed(
        f"job {name} has {granted} of {workers} workers after {timeout:.0f} s; it still wants all of them"
    )


def _follow(session: Session, item: Manifest, request: Manifest) -> str:
    """Wait until a request is over, and return what to say. Raises ScaleFailed if it has failed."""
    metadata, resource = request["metadata"], scale_request.RESOURCES[request["kind"]]
    name = f"{request['kind']} {metadata['namespace']}/{metadata['name']}"
    for _ in looks(request["spec"]["timeoutSeconds"] + _SPARE_SECONDS, _LOOK_SECONDS):
        try:
            status = session.cluster.get(resource, metadata["name"], metadata["namespace"]).get("status") or {}
        except errors.NotFound as error:
            job_ref.find(session, str(job_ref.key(item)))  # NotFound says that the job is gone, and the request with it
            raise ScaleFailed(f"{name} was deleted before it was over") from error
        phase, message = status.get("phase") or "Pending", status.get("message", "")
        if phase == "Succeeded":
            return f"{name} has succeeded: {message}"
        if phase == "Failed":
            raise ScaleFailed(f"{name} has failed ({status.get('reason', '')}): {message}")
    raise ScaleFailed(f"{name} is still {phase}: {message or 'no worker has taken it up'}")
