"""Leases and events: their schemas and validation.

One rule: a lease's times have microseconds, and an event has the namespace of its object.
"""

from collections.abc import Iterator
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta
from embedded.apiserver.kinds.pod_schema import INT, MICRO, MOMENT, OPEN, TEXT, atomic, fields, keep_empty, texts
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

LEASE = fields(
    **texts("holderIdentity", "strategy", "preferredHolder"),
    **dict.fromkeys(("acquireTime", "renewTime"), MICRO),
    leaseDurationSeconds=INT,
    leaseTransitions=INT,
)
LEASE["properties"]["holderIdentity"] = keep_empty(TEXT)
_LATER = {**keep_empty(MICRO), "nullable": True, "default": None}
EVENT: dict[str, dict[str, Any]] = {
    **texts("reason", "message", "type", "action"),
    **dict.fromkeys(("firstTimestamp", "lastTimestamp"), MOMENT),
    "eventTime": _LATER,
    "reportingComponent": {**keep_empty(TEXT), "default": ""},
    "reportingInstance": {**keep_empty(TEXT), "default": ""},
    "count": {**INT, "x-dropped": True},
    "source": {**keep_empty(fields(**texts("component", "host"))), "default": {}},
    "series": keep_empty(fields(count={**INT, "x-dropped": True}, lastObservedTime=_LATER)),
    "involvedObject": atomic(
        fields(**texts("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"))
    ),
    "related": OPEN,
}
_CLUSTERWIDE = ("default", "kube-system")
"""The namespaces of events about objects without a namespace."""


def check_lease(new: Manifest, old: Manifest | None) -> Iterator[Cause]:  # noqa: ARG001
    """Yield the problems of a lease."""
    spec = new["spec"]
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield status_errors.invalid_value(
            "spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"
        )
    if spec.get("leaseTransitions", 0) < 0:
        transitions = spec["leaseTransitions"]
        yield status_errors.invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def check_event(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of an event."""
    namespace, about = new["metadata"].get("namespace", ""), (new.get("involvedObject") or {}).get("namespace", "")
    if about != namespace and (about or namespace not in _CLUSTERWIDE):
        yield status_errors.invalid_value("involvedObject.namespace", about, "does not match event.namespace")
    if old is None and new.get("eventTime"):
        yield from _check_reporter(new)


def _check_reporter(new: Manifest) -> Iterator[Cause]:
    reporter = new.get("reportingComponent", "")
    if not reporter:
        yield status_errors.required("reportingComponent")
    yield from status_errors.invalid_values("reportingComponent", reporter, object_meta.label_key_problems(reporter))
    for name in ("reportingInstance", "action", "reason"):
        if not new.get(name):
            yield status_errors.required(name)
