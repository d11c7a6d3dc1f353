"""An elastic job in the mode InPlaceRestart on real processes: after each resize, a new world has its own ranks."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crds import labels
from crds.api_resources import TORCHJOBS
from kube.api import Manifest
from kube.informer import Informer
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

NOTING = """
import os, signal, sys, time
names = ("POD", "RANK", "WORLD_SIZE", "PET_NNODES", "PET_NODE_RANK", "PET_RDZV_ID", "MASTER_PORT")
with open(os.path.join(sys.argv[1], "starts"), "a") as file:
    print(*(os.environ[name] for name in names), file=file)
if os.environ["RANK"] != "0":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
while not os.path.exists(os.path.join(sys.argv[1], "go")):
    time.sleep(0.02)
"""


class Noting:
    """A job whose processes record each of their starts."""

    def __init__(self, stack: Stack, folder: Path, **policy: Any) -> None:
        self.stack, self.folder, self.name = stack, folder, fresh("world")
        body = job(self.name, python(NOTING, folder), workers=2, policy="OnFailure", cpu="100m")
        tasks = body["spec"]["torchTaskSpecs"]
        bounds = {"mode": "InPlaceRestart", "numMinReplicas": 1, "numMaxReplicas": 4, **policy}
        body["spec"] |= {
            "torchElasticPolicy": bounds,
            "schedulingPolicy": body["spec"].get("schedulingPolicy", {}) | {"checkpointSeconds": 600},
            "torchTaskSpecs": {"Worker": {**tasks["Worker"], "dependsOn": []}},
        }
        self._writes, self._version = 0, 0
        self._jobs = Informer(stack.api, TORCHJOBS, trim=_counted, namespace="default", on_change=self._note)
        self._jobs.start()
        stack.submit(body)
        self.met(0, 2)
        stack.reach(self.name, "Running")

    def _note(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        if after is not None and after["name"] == self.name:
            self._writes += before is not None and before["status"] != after["status"]
            self._version = after["version"]

    def writes(self) -> int:
        """Return how often workers have written the status, after the watch has shown the newest version."""
        newest = _counted(self.stack.job(self.name))["version"]
        until(lambda: self._version >= newest)
        return self._writes

    def close(self) -> None:
        self._jobs.stop()

    def starts(self) -> list[list[str]]:
        with contextlib.suppress(FileNotFoundError):
            return [line.split() for line in (self.folder / "starts").read_text().splitlines()]
        return []

    def met(self, generation: int, *workers: int) -> list[list[str]]:
        """Wait until all pods of a generation have started, and return their starts by rank."""
        count = workers[0]

        def found() -> list[list[str]]:
            return sorted(
                (each for each in self.starts() if each[5].endswith(f"-{generation}")), key=lambda each: each[1]
            )

        return list(until(found, lambda starts: len(starts) == count))

    def uids(self) -> dict[str, str]:
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in self.stack.pods(self.name)}

    def status(self) -> dict[str, Any]:
        return dict(self.stack.job(self.name)["status"])

    def save(self) -> None:
        """Wait until the job is asked to save, and answer that the job has saved."""

        def asked() -> Any:
            return self.stack.job(self.name)["metadata"]["annotations"].get(labels.CHECKPOINT_REQUESTED)

        number = until(asked)
        assert not self.status()["scaling"]["victims"]
        note = {"metadata": {"annotations": {labels.CHECKPOINT_COMPLETED: number}}}
        self.stack.api.patch(TORCHJOBS, self.name, note, "default")

    def settle(self, workers: int) -> dict[str, Any]:
        """Wait until a resize has ended, and return the status."""

        def settled(found: Mapping[str, Any]) -> bool:
            return found["admission"]["workers"] == workers and "scaling" not in found

        return dict(until(self.status, settled))


def _counted(manifest: Manifest) -> Mapping[str, Any]:
    """Return the part of a job's status that workers write, and the job's version."""
    status = {name: value for name, value in (manifest.get("status") or {}).items() if name != "queue"}
    metadata = manifest["metadata"]
    return {"name": metadata["name"], "version": int(metadata["resourceVersion"]), "status": status}


def places(starts: list[list[str]], name: str) -> list[tuple[str, ...]]:
    """Return pod, rank and size of the world of each start."""
    return [(pod.removeprefix(f"{name}-"), rank, size) for pod, rank, size, *_ in starts]


def test_each_number_of_workers_is_one_world(stack: Stack, tmp_path: Path) -> None:
    training = Noting(stack, tmp_path)
    with contextlib.closing(training):
        first, begun, before = training.uids(), training.writes(), training.status()

        stack.torchq("job", "scale", training.name, "3")
        grown = training.met(1, 3)
        assert places(grown, training.name) == [("worker-0", "0", "3"), ("worker-1", "1", "3"), ("worker-2", "2", "3")]
        assert all(start[3] == start[2] and start[4] == start[1] for start in grown), (
            "torchrun sees the same size and rank"
        )
        training.settle(3)
        assert first.items() <= training.uids().items(), "the first workers keep their pods"
        assert training.writes() - begun <= 4, (
            "at most one write each for the request, the grant, the new world and the end of the resize"
        )

        larger, begun = training.uids(), training.writes()
        stack.torchq("job", "scale", training.name, "2")
        training.save()
        shrunk = training.met(2, 2)
        assert places(shrunk, training.name) == [("worker-0", "0", "2"), ("worker-1", "1", "2")]
        after = training.settle(2)
        kept = {name: uid for name, uid in larger.items() if not name.endswith("worker-2")}
        assert training.uids() == kept
        assert training.writes() - begun <= 4

        assert len(training.starts()) == 2 + 3 + 2, "every container started once in each world"
        assert len({start[6] for start in training.starts()}) == 1, "the job keeps its port"
        unchanged = ("startTime", "attempt", "phase")
        assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}
        assert (after.get("restartCount", 0), after.get("disruptions", 0)) == (0, 0)
        (tmp_path / "go").touch()
        stack.reach(training.name, "Succeeded")
