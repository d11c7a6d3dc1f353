"""Calls that wait for jobs.

One rule: all waits of a namespace share one watch, and a wait that is cancelled leaves it at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast, get_args

from coordinator.cli import job_ref
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall
from coordinator.follow.endings import Goal, JobEnding
from coordinator.follow.waiting import Waits
from crds.keys import JobKey
from torchq._errors import Failed, Invalid, TimedOut

Params = Mapping[str, Any]
GOALS: tuple[str, ...] = get_args(Goal)


def wait(access: ClusterAccess, params: Params, call: OpenCall) -> list[dict[str, Any]]:
    """Wait for all of some jobs, or for the first, and return their ends in the order of the jobs."""
    keys = _keys(access, params["jobs"])
    if not keys:
        return []
    endings: dict[JobKey, JobEnding] = {}
    with _waits(access, keys, params, call) as waits:
        for ending in waits:
            endings[ending.key] = ending
            if params.get("first"):
                break
        else:
            _check_all_ended(waits.waiting, params, call)
    return [describe(endings[key]) for key in keys if key in endings]


def as_completed(access: ClusterAccess, params: Params, call: OpenCall) -> Iterator[str]:
    """Yield the handle of each job as it ends."""
    with _waits(access, _keys(access, params["jobs"]), params, call) as waits:
        for ending in waits:
            yield str(ending.key)
        _check_all_ended(waits.waiting, params, call)


def wait_for_one(access: ClusterAccess, params: Params, call: OpenCall) -> dict[str, Any]:
    """Wait for a job, and return how it ended."""
    return describe(_ending(access, params, call))


def result(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Wait for a job, and return its result. Raises Failed if it did not succeed."""
    ending = _ending(access, params, call)
    if ending.outcome != "Succeeded":
        name = f"{ending.key.namespace}/{ending.key.name}"
        raise Failed(f"job {name}: {ending.outcome}: {ending.message}", ending.outcome)
    return ending.result


def describe(ending: JobEnding) -> dict[str, Any]:
    """Return the end of a wait as JSON."""
    return {
        "handle": str(ending.key),
        "outcome": ending.outcome,
        "message": ending.message,
        "result": ending.result,
    }


def key_of(access: ClusterAccess, handle: str) -> JobKey:
    """Return the key of a handle. Only a name without a uid costs a request."""
    namespace, name, uid = job_ref.parse(access.session, handle)
    return JobKey(namespace, name, uid) if uid else job_ref.key(job_ref.find(access.session, handle))


def _keys(access: ClusterAccess, handles: Iterable[str]) -> list[JobKey]:
    return list(dict.fromkeys(key_of(access, handle) for handle in handles))


def _ending(access: ClusterAccess, params: Params, call: OpenCall) -> JobEnding:
    with _waits(access, [key_of(access, params["job"])], params, call) as waits:
        for ending in waits:
            return ending
        _check_all_ended(waits.waiting, params, call)
    raise TimedOut("the wait was cancelled")


def _waits(access: ClusterAccess, keys: list[JobKey], params: Params, call: OpenCall) -> Waits:
    goal, timeout = params.get("goal", "Finished"), params.get("timeout")
    if goal not in GOALS:
        raise Invalid(f"goal: must be one of {', '.join(GOALS)}, not {goal!r}")
    waits = Waits(access.feeds, keys, goal=cast(Goal, goal), timeout=timeout)
    call.when_cancelled(waits.close)
    return waits


def _check_all_ended(waiting: list[JobKey], params: Params, call: OpenCall) -> None:
    """Raise TimedOut if the time was over before all jobs had ended."""
    if waiting and not call.is_cancelled:
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        name = f"{waiting[0].namespace}/{waiting[0].name}"
        raise TimedOut(f"job {name}{more} did not end within {params['timeout']} s; the wait is over, the job goes on")
