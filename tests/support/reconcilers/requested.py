"""The simulated job of `resizing` with scale requests. The worker of the job carries the requests out.

One rule: a write that is based on an older version of the object is refused, as an API server would refuse it.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from crds import labels, scale_request
from crds.scale_request import ScaleStatus
from reconcilers.plan.plan import plan
from reconcilers.values import Action, DeleteObject, InvalidSize, Observation, PatchRequest, Plan, SetWorkers
from reconcilers.views import scale_request_view
from reconcilers.views.scale_request_view import RequestView
from tests.support.reconcilers import builders, sizes
from tests.support.reconcilers.resizing import LOCAL, Resizing, running_workers


@dataclass
class Requested(Resizing):
    """A job with workers only, its reservation, and the scale requests in its namespace."""

    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The manifests of the requests by name."""
    allowed: range = range(1, 9)
    """The sizes that the API server accepts."""
    refusal: str = ""
    """The message of the API server about the last refused size."""

    def ask(self, name: str, *, job: str = "digits", timeout: int = 100, ttl: int = 300, **change: Any) -> None:
        """Create a ScaleOut (`add`) or a ScaleIn (`remove`, `names`)."""
        found = {"add": "toAdd", "remove": "toDelete", "names": "toDelete"}
        parts: dict[str, Any] = {}
        for word, value in change.items():
            parts.setdefault(found[word], {})["podNames" if word == "names" else "count"] = value
        kind: Any = "ScaleOut" if "toAdd" in parts else "ScaleIn"
        body = scale_request.manifest(kind, job, timeoutSeconds=timeout, ttlSecondsAfterFinished=ttl, **parts)
        made = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1"}
        body["metadata"] = made | {"creationTimestamp": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.asked[name] = body

    def delete(self, name: str) -> None:
        """Delete a request, as its owner does. A finalizer keeps the request."""
        metadata = self.asked[name]["metadata"]
        if metadata.get("finalizers"):
            metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
            self._touch(name)
        else:
            del self.asked[name]

    def view(self, name: str) -> RequestView:
        return scale_request_view.trim(copy.deepcopy(self.asked[name]))

    def state(self, name: str) -> ScaleStatus:
        return self.view(name).status

    def phase(self, name: str) -> tuple[str, str]:
        found = self.state(name)
        return found.phase, found.reason

    def observe(self) -> Observation:
        views = sorted(map(self.view, self.asked), key=lambda request: request.place)
        found = tuple(request for request in views if request.job == "digits" and request.is_for(builders.UID))
        return replace(super().observe(), requests=found, obstacle=InvalidSize(self.refusal) if self.refusal else None)

    def plan(self) -> Plan:
        found = plan(self.observe(), self.settings, self.now)
        self.refusal = ""
        return found

    def carry_out(self, action: Action) -> None:
        match action:
            case PatchRequest(request, change, subresource):
                self._patch(request, change, subresource)
            case SetWorkers(workers, version):
                assert self.manifest is not None
                assert version == self.manifest["metadata"]["resourceVersion"]
                if workers in self.allowed:
                    self.want(workers)
                else:
                    self.refusal = f"numTasks must not be {workers}"
            case DeleteObject(_, name, uid) if name in self.asked:
                assert self.asked[name]["metadata"]["uid"] == uid
                self.delete(name)
            case _:
                super().carry_out(action)

    def _patch(self, request: RequestView, change: Mapping[str, Any], subresource: str) -> None:
        stored = self.asked[request.name]
        assert stored["metadata"]["resourceVersion"] == request.resource_version, (
            "the write is based on an older version"
        )
        assert set(change) == {subresource or "metadata"}
        for part, fields in change.items():
            merged = stored.get(part, {}) | fields
            stored[part] = {name: value for name, value in merged.items() if value is not None}
        self._touch(request.name)
        metadata = stored["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del self.asked[request.name]

    def _touch(self, name: str) -> None:
        metadata = self.asked[name]["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def lose_room(self) -> None:
        """Let the job wait for its first admission."""
        assert self.manifest is not None
        self.manifest["status"], self.pods, self.reservation = {}, {}, None

    def finish(self, seconds: int = 0) -> None:
        """Let some time pass. Then let the rest of the cluster do its work until nothing changes."""
        self.pass_time(seconds)
        for _ in range(6):
            self.work()
            scaling = self.known.status.scaling
            if scaling is not None:
                self.give(scaling.to)
            self.work()
            self.run()
            self.end()
            self.lower()
        self.work()

    def pass_time(self, seconds: int) -> None:
        self.now = datetime.fromtimestamp(self.now.timestamp() + seconds, self.now.tzinfo)


def requested(wish: int, size: int | None = None, **spec: Any) -> Requested:
    """Return an elastic job whose granted workers all run."""
    size = size or wish
    policy = {"numMaxReplicas": 8, "mode": "InPlaceRestart"} | spec.pop("policy", {})
    if size < wish:
        policy = {"numMinReplicas": 1} | policy
    running = builders.manifest(
        {"Worker": builders.task(wish, **spec.pop("worker", {}))},
        sizes.granted("Running", size, wish),
        torchElasticPolicy=policy,
        **spec,
    )
    found = Requested(running, running_workers(size), sizes.held(size), LOCAL)
    found.work()
    found.writes = 0
    return found


def held(job: Requested, name: str) -> bool:
    """Return whether a finalizer keeps a request."""
    return labels.SCALE_OUT in job.asked[name]["metadata"].get("finalizers", ())
