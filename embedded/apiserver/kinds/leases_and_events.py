"""Leases and events: their shape, and what is wrong with one.

One rule: what others rely on is exact: a lease's times to the microsecond, an event's namespace its object's.
"""

from collections.abc import Iterator
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import metadata
from embedded.apiserver.kinds.pod_schema import INT, MICRO, MOMENT, OPEN, TEXT, atomic, fields, kept, texts
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

LEASE = fields(
    **texts("holderIdentity", "strategy", "preferredHolder"),
    **dict.fromkeys(("acquireTime", "renewTime"), MICRO),
    leaseDurationSeconds=INT,
    leaseTransitions=INT,
)
LEASE["properties"]["holderIdentity"] = kept(TEXT)
_LATER = {**kept(MICRO), "nullable": True, "default": None}
EVENT: dict[str, dict[str, Any]] = {
    **texts("reason", "message", "type", "action"),
    **dict.fromkeys(("firstTimestamp", "lastTimestamp"), MOMENT),
    "eventTime": _LATER,
    "reportingComponent": {**kept(TEXT), "default": ""},
    "reportingInstance": {**kept(TEXT), "default": ""},
    "count": {**INT, "x-dropped": True},
    "source": {**kept(fields(**texts("component", "host"))), "default": {}},
    "series": kept(fields(count={**INT, "x-dropped": True}, lastObservedTime=_LATER)),
    "involvedObject": atomic(
        fields(**texts("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"))
    ),
    "related": OPEN,
}
_CLUSTERWIDE = ("default", "kube-system")
"""Namespaces for the events of what is in none."""


def check_lease(new: Manifest, old: Manifest | None) -> Iterator[Cause]:  # noqa: ARG001
    """What is wrong with a lease."""
    spec = new["spec"]
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield status_errors.wrong("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        transitions = spec["leaseTransitions"]
        yield status_errors.wrong("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def check_event(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """What is wrong with an event."""
    own, about = new["metadata"].get("namespace", ""), (new.get("involvedObject") or {}).get("namespace", "")
    if about != own and (about or own not in _CLUSTERWIDE):
        yield status_errors.wrong("involvedObject.namespace", about, "does not match event.namespace")
    if old is None and new.get("eventTime"):
        yield from _check_reporter(new)


def _check_reporter(new: Manifest) -> Iterator[Cause]:
    reporter = new.get("reportingComponent", "")
    if not reporter:
        yield status_errors.required("reportingComponent")
    for text in metadata.qualified_problems(reporter):
        yield status_errors.wrong("reportingComponent", reporter, text)
    for name in ("reportingInstance", "action", "reason"):
        if not new.get(name):
            yield status_errors.required(name)
