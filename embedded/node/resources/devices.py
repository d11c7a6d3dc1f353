"""Assigns the node's GPUs to pods.

One rule: an assignment is on disk before the pod runs, and stays until no process of the pod runs. So a node that
starts again does not assign the GPUs of pods that still run.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from crds.torchjob import demand
from embedded.layout import Layout
from embedded.node.resources.machine import GPU
from embedded.node.runs import shim

_FILE = "gpus"


class Devices:
    """The GPUs of this node."""

    def __init__(self, layout: Layout, devices: Sequence[str]) -> None:
        self._layout = layout
        self._devices = tuple(devices)
        pods = layout.root / "pods"
        self._assigned: dict[str, tuple[str, ...]] = {
            file.parent.name: tuple(json.loads(file.read_bytes())) for file in pods.glob(f"*/{_FILE}")
        }

    def assign(self, uid: str, count: int) -> tuple[str, ...] | None:
        """Return the pod's GPUs, the same GPUs at every call; None if fewer than `count` are free now."""
        if uid in self._assigned or not count:
            return self._assigned.get(uid, ())
        used = {device for devices in self._assigned.values() for device in devices}
        devices = tuple(islice((device for device in self._devices if device not in used), count))
        if len(devices) < count:
            return None
        shim.write(str(self._layout.pod(uid)), _FILE, json.dumps(devices))
        self._assigned[uid] = devices
        return devices

    def release(self, uid: str) -> None:
        """Free the pod's GPUs."""
        if self._assigned.pop(uid, None) is not None:
            with suppress(FileNotFoundError):
                (self._layout.pod(uid) / _FILE).unlink()


def count(spec: Mapping[str, Any]) -> int:
    """Return how many GPUs a pod needs at once."""
    return demand.pod_demand(spec).get(GPU, 0)


def share(spec: Mapping[str, Any], name: str, devices: Sequence[str]) -> tuple[str, ...]:
    """Return a container's part of its pod's GPUs.

    Init containers run one after the other, so each init container takes the first devices. The others run together and
    share them out.
    """
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
