"""Calls that follow the output of a job.

One rule: a stream that is cancelled stops reading; nothing of it goes on.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from coordinator.cli.rpc import waits
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall
from coordinator.follow import endings
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.logs import follow
from coordinator.follow.present_logs import NoOutput
from coordinator.follow.reports import parse as parse_report
from crds.keys import JobKey
from torchq._errors import Invalid

Params = Mapping[str, Any]


def logs(access: ClusterAccess, params: Params, call: OpenCall) -> Iterator[dict[str, Any]]:
    """Yield the lines of a job's pods; of one pod only if a task or an index is given."""
    for name in ("index", "tail"):
        if params.get(name, 0) < 0:
            raise Invalid(f"{name}: must not be negative, not {params[name]}")
    selection = LogSelection(
        task=params.get("task", ""),
        index=params.get("index", 0),
        container=params.get("container", ""),
        all="task" not in params and "index" not in params,
        tail=params.get("tail"),
        previous=params.get("previous", False),
        run=params.get("run"),
        follow=params.get("follow", False),
    )
    for line in _lines(access, params, selection, call):
        yield {"pod": line.pod, "text": line.text, "time": line.time}


def reports(access: ClusterAccess, params: Params, call: OpenCall) -> Iterator[dict[str, Any]]:
    """Yield the reports in the output of all pods; none of a job that has ended without output."""
    is_followed = params.get("follow", True)
    try:
        for line in _lines(access, params, LogSelection(all=True, follow=is_followed), call):
            if (report := parse_report(line)) is not None:
                yield report
    except NoOutput:
        if is_followed and not _has_ended(access, waits.key_of(access, params["job"])):
            raise  # the job can never run, and nobody should wait for it


def _has_ended(access: ClusterAccess, key: JobKey) -> bool:
    with access.feeds.of(key.namespace).changes(key) as changes:
        return endings.judge(key, next(changes, None), "Finished") is not None


def _lines(access: ClusterAccess, params: Params, selection: LogSelection, call: OpenCall) -> Iterator[LogLine]:
    key = waits.key_of(access, params["job"])
    return follow(access.session.cluster, access.feeds.of(key.namespace), key, selection, call.stop)
