"""The pods that run although no node process watches them.

Such pods remain after the stack was killed, or after it went down without ending its pods.

One rule: this module only reads. The files and locks of the data folder are enough, and no server is needed.
"""

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass

from crds import labels
from crds.api_resources import PODS
from embedded.layout import Layout
from embedded.node.runs.container_runs import ContainerRuns


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that has running processes."""

    uid: str
    namespace: str = ""
    """The namespace; empty, like the name, if the database does not have the pod."""
    name: str = ""
    job: str = ""
    """The TorchJob to which the pod belongs; empty if it belongs to none."""


def running(layout: Layout) -> tuple[RunningPod, ...]:
    """Return the pods of a data folder that have running processes."""
    runs, folder = ContainerRuns(layout), layout.root / "pods"
    uids = sorted(uid for uid in _file_names(folder) if runs.has_live_shim(uid))
    pods = _stored_pods(layout) if uids else {}
    return tuple(pods.get(uid, RunningPod(uid)) for uid in uids)


def _file_names(folder: os.PathLike[str]) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(folder)
    return []


def _stored_pods(layout: Layout) -> Mapping[str, RunningPod]:
    """Return the pods in the database of a server that does not run, by uid; none if the database cannot be read."""
    with suppress(sqlite3.Error, ValueError, KeyError):
        address = f"{layout.database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=0.5)) as database:
            rows = database.execute("SELECT body FROM objects WHERE resource = ?", (PODS.plural,)).fetchall()
        return {pod.uid: pod for (body,) in rows if (pod := _read(body))}
    return {}


def _read(body: bytes) -> RunningPod:
    metadata = json.loads(body)["metadata"]
    job = (metadata.get("labels") or {}).get(labels.JOB_NAME, "")
    return RunningPod(metadata["uid"], metadata["namespace"], metadata["name"], job)
