"""The node and the scheduler of a simulation: they bind pods, run them, end them as the scenario says.

One rule: a pod ends only when its job is Running, and a master last, so that every run ends alike.
"""

from functools import partial
from typing import Any

import orjson

from cluster.local.objects import Stored
from cluster.requests import Request
from crds import labels
from crds.resources import PODS, TORCHJOBS
from tests.faults.api import Api, ApiClient
from tests.faults.scenarios import Scenario, marks


class Node:
    """Runs every pod there is."""

    def __init__(self, api: Api, client: ApiClient, scenario: Scenario) -> None:
        self._api, self._client, self._scenario = api, client, scenario
        self._phases: dict[bytes, str] = {}
        self._at = -1
        self._acts: list[Any] = []

    def acts(self) -> list[Any]:
        """What it could do next, one call each."""
        if self._at != self._api.revision:
            self._at, self._acts = self._api.revision, self._found()
        return self._acts

    def _found(self) -> list[Any]:
        phases = {each.uid: self._phase(each) for each in self._api.objects(TORCHJOBS)}
        pods = self._api.objects(PODS)
        busy = {
            each.labels[labels.JOB_UID] for each in pods if self._ends_first(each) and self._phase(each) != "Succeeded"
        }
        found: list[Any] = []
        for stored in pods:
            job, phase = stored.labels[labels.JOB_UID], self._phase(stored)
            if stored.deleting:
                found.append(partial(self._remove, stored))
            elif phase in ("", "Pending") and int(stored.labels[labels.ATTEMPT]) > self._scenario.stuck:
                found.append(partial(self._run, stored))
            elif phase == "Running" and phases.get(job) == "Running" and (self._ends_first(stored) or job not in busy):
                code = self._scenario.fate(*marks(stored.labels))
                found += [] if code is None else [partial(self._end, stored, code)]
        return found

    def _ends_first(self, stored: Stored) -> bool:
        """Whether it is no master, and ends by itself."""
        task, index, restart = marks(stored.labels)
        return task != "master" and self._scenario.fate(task, index, restart) is not None

    def _phase(self, stored: Stored) -> str:
        if stored.raw not in self._phases:
            self._phases[stored.raw] = (orjson.loads(stored.raw).get("status") or {}).get("phase", "")
        return self._phases[stored.raw]

    def _remove(self, pod: Stored) -> str:
        self._client.delete(PODS, pod.name, pod.namespace, grace_period_seconds=0)
        return f"{pod.name} is removed"

    def _run(self, pod: Stored) -> str:
        if not pod.manifest()["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": "node"}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target}
            path = PODS.path(pod.namespace, pod.name, "binding")
            self._api.send(Request("POST", path, "bind a pod", orjson.dumps(body)))
        return self._status(pod, {"phase": "Running"})

    def _end(self, pod: Stored, code: int) -> str:
        ended = {"name": "torch", "state": {"terminated": {"exitCode": code, "reason": "Error" if code else "Done"}}}
        return self._status(pod, {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]})

    def _status(self, pod: Stored, status: Any) -> str:
        self._client.patch(PODS, pod.name, {"status": status}, pod.namespace, subresource="status")
        return f"{pod.name} {status['phase']}"
