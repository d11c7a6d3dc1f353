"""The pods that run although no node watches them: what is left when a stack was killed, or went down without them.

One rule: it only looks, at the disk and at locks, and needs no server.
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
from embedded.node.runs.container_runs import Runs


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod of which processes run."""

    uid: str
    namespace: str = ""
    """Empty, as the name, if the database does not tell."""
    name: str = ""
    job: str = ""
    """The TorchJob it belongs to; empty if it belongs to none."""


def running(layout: Layout) -> tuple[RunningPod, ...]:
    """The pods of a data folder of which processes run."""
    runs, folder = Runs(layout), layout.root / "pods"
    uids = sorted(uid for uid in _listed(folder) if runs.alive(uid))
    known = _known(layout) if uids else {}
    return tuple(known.get(uid, RunningPod(uid)) for uid in uids)


def _listed(folder: os.PathLike[str]) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(folder)
    return []


def _known(layout: Layout) -> Mapping[str, RunningPod]:
    """The pods that the database of a server that does not run has, by uid; none if it cannot be read."""
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
