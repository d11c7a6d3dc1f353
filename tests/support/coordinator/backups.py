"""Backups of jobs, the restore of their objects, and a client that is killed in the middle of a restore."""

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from coordinator.cli.backup import restore_requests, saved
from coordinator.cli.backup.restore_requests import RestoreOptions
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.coordinator.desk import manifest

NOW = datetime(2026, 2, 1, tzinfo=UTC)
WHEN = "2026-01-01T00:00:00Z"


def waiting(name: str, namespace: str, **spec: Any) -> Manifest:
    """Return an admitted job as it stands in a backup."""
    body = manifest(name, "a", **spec)
    metadata = {"namespace": namespace, "uid": f"old-{name}", "creationTimestamp": WHEN}
    admission = {"queue": "a", "attempt": 3, "epoch": 9, "charge": {"jobs": 1}}
    return body | {
        "metadata": body["metadata"] | metadata,
        "status": {"phase": "Running", "attempt": 3, "admission": admission},
    }


def run(cluster: Any, *items: Manifest, **options: Any) -> list[str]:
    """Restore a backup of these objects and return the printed messages."""
    told: list[str] = []
    backup = saved.read([("FILE", {"kind": "List", "items": copy.deepcopy(list(items))})])
    restore_requests.restore(cluster, backup, RestoreOptions(now=NOW, **options), told.append)
    return told


class Killed(BaseException):
    """The command is killed."""


class Mortal:
    """A cluster whose client is killed at one of its writes: before the write is sent, or after it was carried out."""

    def __init__(self, cluster: KubernetesCluster, writes: int, after: bool) -> None:
        self._cluster, self._left, self._after = cluster, writes, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        return self._counted(method) if name in ("create", "patch") else method

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, dry_run: bool = False, **options: Any) -> Any:
            self._left -= not dry_run
            is_last = not dry_run and self._left == 0
            if is_last and not self._after:
                raise Killed
            result = method(*arguments, dry_run=dry_run, **options)
            if is_last:
                raise Killed
            return result

        return write
