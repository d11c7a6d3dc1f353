"""Calls that follow the output of a job.

One rule: a stream that is cancelled stops reading; nothing of it goes on.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from coordinator.cli.rpc import waits
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.logs import follow
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
        follow=params.get("follow", False),
    )
    for line in _lines(access, params, selection, call):
        yield {"pod": line.pod, "text": line.text, "time": line.time}


def _lines(access: ClusterAccess, params: Params, selection: LogSelection, call: OpenCall) -> Iterator[LogLine]:
    key = waits.key_of(access, params["job"])
    return follow(access.session.cluster, access.feeds.of(key.namespace), key, selection, call.stop)
