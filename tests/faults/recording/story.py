"""A story of jobs, queues and pods, recorders with faults that follow it, and the recorder that sees everything.

One rule: a story is a function of its seed. An event is late by less than a second, unless a recorder is cut off, and
knows it.
"""

import random
from collections.abc import Callable
from typing import Any

from coordinator.recorder.recorder import SWEEP_SECONDS
from coordinator.recorder.sights import CATCH_UP_SECONDS
from crds import integers
from crds.api_resources import LEASES, PODS, TORCHJOBS
from crds.labels import RECORDED_VERSION
from history.rows import GapRow
from kube import errors
from kube.api import Manifest
from tests.support.coordinator.recording import CHARGE, FailingHistory, RecordedCluster, RecorderProcess

NAMES = ("digits", "words", "birds")
STEPS = 60
SECONDS = (0, 1, 3, 7, 25)


class Killed(BaseException):
    """A recorder dies in the middle of a call."""


class FlakyClient:
    """The API server as a recorder sees it, of which one call to the Lease may fail."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.fault = ""

    def __getattr__(self, verb: str) -> Any:
        effect = getattr(self._client, verb)

        def call(*given: Any, **named: Any) -> Any:
            fault, self.fault = self.fault, ""
            if fault == "before":
                raise errors.Unreachable("no answer")
            answer = effect(*given, **named)
            if fault == "after":
                raise errors.Unreachable("no answer")
            return answer

        return call


class Story:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = RecordedCluster()
        self.whole, self.store = FailingHistory(), FailingHistory()
        """What the recorder writes that sees everything, and what the others write together."""
        self.witness = self._begin(self.whole, "witness", "default")
        self.recorders: list[RecorderProcess | None] = [None, None]
        self.expired: dict[str, str] = {}
        """The jobs that torchq has deleted by itself, with their ends."""
        self.broken: list[str] = []
        self.begin = 0
        """When the history begins: what was over before is in no history."""
        self.troubled: list[GapRow] = []
        """When not every recorder saw everything, and a while after."""
        self._names = 0

    def run(self) -> None:
        """Run to the end, at which all recorders have caught up."""
        for _ in range(STEPS):
            self._turn()
        self.store.away, self.store.fail_at = False, {}
        self.recorders = [recorder or self._new() for recorder in self.recorders]
        for recorder in self.recorders:
            if recorder is not None and recorder.is_cut:
                recorder.mend(is_forgotten=True)
        for seconds in (5,) * 10 + (SWEEP_SECONDS, 5, 5):
            self._catch_up()
            self.cluster.clock.step(seconds)
            for recorder in (self.witness, *self.recorders):
                assert recorder is not None
                recorder.recorder.step()
        self._check()

    def _turn(self) -> None:
        for act in self.chance.choices((self._act, self._fault, self._step_one, self._hear_one), (4, 1, 3, 3), k=4):
            act()
            self._witness()
            self._check()
        self._catch_up()
        start = self.cluster.seconds
        self.cluster.clock.step(self.chance.choice(SECONDS))
        is_well = not self.store.away and all(each is not None and not each.is_cut for each in self.recorders)
        if not is_well:
            self.troubled.append(GapRow(start=start - 1, end=self.cluster.seconds + int(2 * CATCH_UP_SECONDS)))

    def _witness(self) -> None:
        self.witness.catch_up()
        self.witness.recorder.step()

    def _catch_up(self) -> None:
        for recorder in (self.witness, *self.recorders):
            if recorder is not None and not recorder.is_cut:
                recorder.catch_up()

    def _act(self) -> None:
        """Let an owner, a worker or an admin do something."""
        jobs = {each.name: each.manifest() for each in self.cluster.api.objects(TORCHJOBS)}
        name = self.chance.choice(NAMES)
        job = jobs.get(name)
        if self.chance.random() < 0.1:
            self.cluster.weigh("team", self.chance.randint(1, 5))
        elif job is None:
            self.cluster.submit(name)
        else:
            self.chance.choice(self._deeds(name, job))()

    def _deeds(self, name: str, job: Manifest) -> list[Callable[[], object]]:
        status, uid = job.get("status") or {}, job["metadata"]["uid"]
        pods = [each.name for each in self.cluster.api.objects(PODS) if uid in each.owners]
        deeds: list[Callable[[], object]] = [lambda: self.cluster.delete(name)]
        deeds += [lambda: self.cluster.delete(self.chance.choice(pods), PODS)] if pods else []
        if status.get("completionTime"):
            return [lambda: self._expire(name, job), *deeds]
        if not status.get("admission"):
            attempt = int(status.get("attempt") or 0) + 1
            return [lambda: self.cluster.admit(name, attempt)] * 4 + deeds
        charge = {**CHARGE, "pods": self.chance.randint(1, 9)}
        return [
            lambda: self.cluster.admit(name, status["attempt"], charge),
            lambda: self.cluster.suspend(name),
            lambda: self.cluster.finish(name, self.chance.choice(("Succeeded", "Failed"))),
            lambda: self._make_pod(name, uid),
            *deeds,
        ]

    def _make_pod(self, name: str, uid: str) -> None:
        self._names += 1
        self.cluster.make_pod(f"{name}-worker-{self._names}", name, uid)

    def _expire(self, name: str, job: Manifest) -> None:
        """Delete a job whose end is recorded, as a worker does when the time to live of the job is over."""
        if integers.parse(job["metadata"]["resourceVersion"], 0) <= self.told_version():
            self.cluster.delete(name)
            self.expired[job["metadata"]["uid"]] = job["status"]["phase"]

    def _fault(self) -> None:
        at = self.chance.randrange(2)
        recorder = self.recorders[at]
        if recorder is None:
            self.recorders[at] = self._new()
            return
        match self.chance.choice(("kill", "stop", "cut", "database", "call", "lease")):
            case "kill":
                self.recorders[at] = None
            case "stop":
                self._survives(at, recorder.stop)
                self.recorders[at] = None
            case "cut":
                self._cut(recorder)
            case "database":
                self.store.away = not self.store.away
            case "call":
                fault: Any = self.chance.choice(("before", "after", Killed()))
                self.store.fail_at = {self.store.calls + self.chance.randint(1, 6): fault}
            case "lease":
                recorder.client.fault = self.chance.choice(("before", "after"))

    def _cut(self, recorder: RecorderProcess) -> None:
        if recorder.is_cut:
            recorder.mend(is_forgotten=self.chance.random() < 0.5)
        else:
            recorder.cut()

    def _step_one(self) -> None:
        at = self.chance.randrange(2)
        recorder = self.recorders[at]
        if recorder is not None:
            self._survives(at, recorder.recorder.step)

    def _survives(self, at: int, act: Callable[[], object]) -> None:
        try:
            act()
        except Killed:
            self.recorders[at] = None

    def _hear_one(self) -> None:
        recorder = self.recorders[self.chance.randrange(2)]
        if recorder is not None and not recorder.is_cut:
            recorder.hear()

    def _new(self) -> RecorderProcess:
        self._names += 1
        return self._begin(self.store, f"recorder-{self._names}", "kube-system")

    def _begin(self, store: FailingHistory, name: str, namespace: str) -> RecorderProcess:
        process = RecorderProcess(self.cluster, store, name, namespace, FlakyClient(self.cluster.client))
        process.list()
        return process

    def told_version(self) -> int:
        """Return up to which version everything is recorded, as the Lease of the recorders says."""
        try:
            lease = self.cluster.client.get(LEASES, "torchq-recorder", "kube-system")
        except errors.NotFound:
            return 0
        return integers.parse((lease["metadata"].get("annotations") or {}).get(RECORDED_VERSION), 0)

    def _check(self) -> None:
        """Note each job that is not in the history though the Lease says so."""
        told = self.told_version()
        self.begin = self.begin or self.store.kept.recorded_until()
        known = {key[1]: row for key, row in self.store.kept.rows.items() if key[0] == "JobRow"}
        for each in self.cluster.api.objects(TORCHJOBS):
            row = known.get(each.uid)
            if each.version <= told and (row is None or row.version < each.version):  # type: ignore[union-attr]
                self.broken.append(f"job {each.name} of version {each.version} is not recorded, the Lease says {told}")
