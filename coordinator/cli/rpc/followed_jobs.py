"""Calls that follow jobs: until they end, to their results, or through their output.

One rule: all waits of a namespace share one watch. A wait or a stream that is cancelled leaves the shared watch at
once, and none of its work continues.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast, get_args

import orjson

from coordinator.cli import api_client, job_ref
from coordinator.cli.rpc import output_files
from coordinator.cli.rpc.call_context import ClusterAccess, OpenCall, Params
from coordinator.errors import CoordinatorError
from coordinator.follow import endings, kept_results, printed_reports
from coordinator.follow.endings import Goal, JobEnding
from coordinator.follow.kept_results import KeptResult
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.logs import follow
from coordinator.follow.present_logs import NoOutput
from coordinator.follow.sent_reports import SentReports, merge
from coordinator.follow.waiting import Waits
from coordinator.local import job_files
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from torchq._errors import Failed, Invalid, NotFound, TimedOut

GOALS: tuple[str, ...] = get_args(Goal)


def wait(access: ClusterAccess, params: Params, call: OpenCall) -> list[dict[str, Any]]:
    """Wait for all of some jobs, or for the first of them, and return their ends in the order of the jobs."""
    keys = _keys(access, params["jobs"])
    if not keys:
        return []
    ends: dict[JobKey, JobEnding] = {}
    for ending in _ends(access, keys, params, call):
        ends[ending.key] = ending
        if params.get("first"):
            break
    return [describe(access, ends[key], call) for key in keys if key in ends]


def as_completed(access: ClusterAccess, params: Params, call: OpenCall) -> Iterator[str]:
    """Yield the handle of each job as it ends."""
    for ending in _ends(access, _keys(access, params["jobs"]), params, call):
        yield str(ending.key)


def wait_for_one(access: ClusterAccess, params: Params, call: OpenCall) -> dict[str, Any]:
    """Wait for a job, and return its end."""
    return describe(access, _ending(access, params, call), call)


def result(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Wait for a job, and return its result. Raises Failed if the job did not succeed, NotFound if the result
    of the job cannot be read."""
    ending = _ending(access, params, call)
    name = f"{ending.key.namespace}/{ending.key.name}"
    if ending.outcome != "Succeeded":
        text = f"job {name}: {ending.outcome}: {ending.message}"
        raise Failed(text, ending.outcome, ending.reason, ending.exit_code)
    value, problem = read_result(access, ending, call)
    if problem:
        raise NotFound(f"job {name} has succeeded, and {problem}")
    return value


def describe(access: ClusterAccess, ending: JobEnding, call: OpenCall) -> dict[str, Any]:
    """Return the end of a wait as JSON. The message says of a result that it cannot be read."""
    value, problem = read_result(access, ending, call)
    return {
        "handle": str(ending.key),
        "outcome": ending.outcome,
        "message": "; ".join(filter(None, (ending.message, problem))),
        "reason": ending.reason,
        "exitCode": ending.exit_code,
        "result": value,
    }


def key_of(access: ClusterAccess, handle: str) -> JobKey:
    """Return the key of a handle. Only a name without a uid costs a request."""
    namespace, name, uid = job_ref.parse(access.session, handle)
    return JobKey(namespace, name, uid) if uid else job_ref.key(job_ref.find(access.session, handle))


def _keys(access: ClusterAccess, handles: Iterable[str]) -> list[JobKey]:
    return list(dict.fromkeys(key_of(access, handle) for handle in handles))


def _ending(access: ClusterAccess, params: Params, call: OpenCall) -> JobEnding:
    for ending in _ends(access, [key_of(access, params["job"])], params, call):
        return ending
    raise TimedOut("the wait was cancelled")


def _ends(access: ClusterAccess, keys: list[JobKey], params: Params, call: OpenCall) -> Iterator[JobEnding]:
    """Yield the ends of the waits for some jobs as they come. Raises TimedOut if the time was over before the last job
    ended.
    """
    goal = params.get("goal", "Finished")
    if goal not in GOALS:
        raise Invalid(f"goal: must be one of {', '.join(GOALS)}, not {goal!r}")
    with Waits(access.feeds, keys, goal=cast(Goal, goal), timeout=params.get("timeout")) as waits:
        call.when_cancelled(waits.close)
        yield from waits
        if (waiting := waits.waiting) and not call.is_cancelled:
            name = f"{waiting[0].namespace}/{waiting[0].name}"
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            over = f"did not end within {params['timeout']} s; the wait is over, the job goes on"
            raise TimedOut(f"job {name}{more} {over}")


def read_result(access: ClusterAccess, ending: JobEnding, call: OpenCall) -> tuple[Any, str]:
    """Return the result of a job, and why the result cannot be read; empty if the result can be read."""
    kept = kept_results.find(ending.result)
    if kept is None:
        return ending.result, ""
    if not (kept.file or kept.is_logged):
        return None, f"its result {kept.describe()}: it was too large for the log, and the job had no outputs"
    try:
        where = _place(access, ending)
        if text := _in_outputs(kept, where) or _in_log(access, ending, kept, call):
            return orjson.loads(text), ""
    except (CoordinatorError, errors.ClusterError, OSError, ValueError) as error:
        return None, f"its result {kept.describe()}, cannot be read: {error}"
    return None, f"its result {kept.describe()}{f' ({where})' if kept.file else ''}, cannot be read from here"


def _place(access: ClusterAccess, ending: JobEnding) -> str:
    """Return where the outputs of a job are, in words; the folder on one machine."""
    key = ending.key
    data = access.session.target.data
    if data is not None:
        return str(data / job_files.OUTPUTS / output_files.own_folder(key))
    item = access.session.cluster.get(TORCHJOBS, key.name, key.namespace)
    return f"claim {(item['spec'].get('outputs') or {}).get('claimName')}, {output_files.own_folder(key)}"


def _in_outputs(kept: KeptResult, folder: str) -> str:
    """Return the result from a folder of this machine; empty if it is not there."""
    path = Path(folder, kept.file)
    if not kept.file or path.is_symlink() or not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    return text if kept.is_copy(text) else ""


def _in_log(access: ClusterAccess, ending: JobEnding, kept: KeptResult, call: OpenCall) -> str:
    if not kept.is_logged:
        return ""
    lines = _lines(access, ending.key, LogSelection(all=True, states="all"), call)
    return kept.join(line.text for line in lines)


def logs(access: ClusterAccess, params: Params, call: OpenCall) -> Iterator[dict[str, Any]]:
    """Yield the lines of a job's pods; of one pod only if a task or an index is given."""
    for name in ("index", "tail"):
        if params.get(name, 0) < 0:
            raise Invalid(f"{name}: must not be negative, not {params[name]}")
    given = {name: value for name, value in params.items() if name != "job"}
    selection = LogSelection(**given, all="task" not in params and "index" not in params)
    for line in _lines(access, key_of(access, params["job"]), selection, call):
        yield {"pod": line.pod, "text": line.text, "time": line.time}


def reports(access: ClusterAccess, params: Params, call: OpenCall) -> Iterator[dict[str, Any]]:
    """Yield the reports of all pods, in their output and sent to a coordinator; none of a job that has ended without
    output."""
    key, is_followed = key_of(access, params["job"]), params.get("follow", True)
    lines = _lines(access, key, LogSelection(all=True, follow=is_followed), call)
    printed = (report for line in lines if (report := printed_reports.parse(line)) is not None)
    sent = SentReports(key.name, lambda: api_client.reports_of(access.session, key), lambda _: True)
    try:
        yield from merge(printed, sent.new, is_followed=is_followed)
    except NoOutput:
        if not is_followed:
            return
        with access.feeds.of(key.namespace).changes(key) as changes:
            if endings.judge(key, next(changes, None), "Finished") is None:
                raise  # the job can never run, and nobody should wait for it


def _lines(access: ClusterAccess, key: JobKey, selection: LogSelection, call: OpenCall) -> Iterator[LogLine]:
    return follow(access.session.cluster, access.feeds.of(key.namespace), key, selection, call.stop)
