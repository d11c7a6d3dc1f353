"""Which GPUs are whose.

One rule: an assignment is on disk before the pod runs and stays until nothing of the pod does, so that a node that
starts again finds the GPUs of the pods it left running taken.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from crds.torchjob import demand
from embedded.layout import Layout
from embedded.node.pods.environment import GPU

_FILE = "gpus"


class Devices:
    """The GPUs of this node."""

    def __init__(self, layout: Layout, devices: Sequence[str]) -> None:
        self._layout = layout
        self._devices = tuple(devices)
        pods = layout.root / "pods"
        found = {file.parent.name: file for file in pods.glob(f"*/{_FILE}")}
        self._assigned: dict[str, tuple[str, ...]] = {
            uid: tuple(json.loads(file.read_bytes())) for uid, file in found.items()
        }

    def assign(self, uid: str, count: int) -> tuple[str, ...] | None:
        """The pod's GPUs, the same ones whenever asked; None if there are not so many free ones at the moment."""
        if uid in self._assigned or not count:
            return self._assigned.get(uid, ())
        taken = {device for devices in self._assigned.values() for device in devices}
        chosen = tuple(islice((device for device in self._devices if device not in taken), count))
        if len(chosen) < count:
            return None
        self._write(uid, chosen)
        self._assigned[uid] = chosen
        return chosen

    def release(self, uid: str) -> None:
        """The pod needs its GPUs no more."""
        if self._assigned.pop(uid, None) is not None:
            with suppress(FileNotFoundError):
                (self._layout.pod(uid) / _FILE).unlink()

    def _write(self, uid: str, devices: Sequence[str]) -> None:
        draft = self._layout.pod(uid) / f".{_FILE}"
        draft.write_text(json.dumps(devices))
        draft.rename(self._layout.pod(uid) / _FILE)


def wanted(spec: Mapping[str, Any]) -> int:
    """How many GPUs a pod needs at once."""
    return demand.pod_demand(spec).get(GPU, 0)


def share(spec: Mapping[str, Any], name: str, devices: Sequence[str]) -> tuple[str, ...]:
    """A container's part of its pod's GPUs: containers side by side, each init container from the beginning."""
    for container in spec.get("initContainers") or ():
        if container["name"] == name:
            return tuple(devices[: demand.requests(container).get(GPU, 0)])
    position = 0
    for container in spec["containers"]:
        count = demand.requests(container).get(GPU, 0)
        if container["name"] == name:
            return tuple(devices[position : position + count])
        position += count
    return ()
