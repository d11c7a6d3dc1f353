"""Any order of requests, growths, losses and interrupted reconciles ends with the workers that the status grants."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from reconcilers.settings import ReconcileSettings
from reconcilers.views import pod_place
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import UID
from tests.support.reconcilers.resizing import Resizing, resizing

MOST = 6
POLICY = {"numMaxReplicas": MOST, "mode": "InPlaceRestart", "joinTimeoutSeconds": 100}
RACKS = {"n1": {"rack": "b"}, "n2": {"rack": "a"}, "n3": {"rack": "b"}}
small = st.integers(1, MOST)


class Resized(RuleBasedStateMachine):
    """A job that its owner resizes at any time, with workers that stop anywhere."""

    job: Resizing

    @initialize(
        least=st.sampled_from([None, 1, 2]),
        wish=st.integers(2, MOST),
        scope=st.sampled_from(["Task", "Job"]),
        driver=st.sampled_from(["local", "recreate"]),
        seconds=st.sampled_from([0, 30]),
        racks=st.sampled_from([None, RACKS]),
    )
    def begin(
        self,
        least: int | None,
        wish: int,
        scope: str,
        driver: Literal["local", "recreate"],
        seconds: int,
        racks: Mapping[str, Mapping[str, str]] | None,
    ) -> None:
        policy: dict[str, Any] = POLICY if least is None else POLICY | {"numMinReplicas": least}
        spec = {"restartScope": scope, "backoffLimit": 1000, "schedulingPolicy": {"checkpointSeconds": seconds}}
        self.job = resizing(wish, racks=racks, torchElasticPolicy=policy, **spec)
        self.job.settings = ReconcileSettings(admission_timeout=0.0, restart_backoff=0.0, in_place=driver)
        self.least, self.failed = least or 1, False

    @rule(wish=small)
    def edit(self, wish: int) -> None:
        self.job.want(max(wish, self.least))

    @rule(most=st.integers(1, 4))
    def work(self, most: int) -> None:
        """Reconcile. The reconcile may be cut off after some actions."""
        self.job.reconcile(most)

    @rule(size=small)
    def give(self, size: int) -> None:
        self.job.give(size)

    @rule(size=small)
    def revoke(self, size: int) -> None:
        self.job.revoke(max(size, self.least))

    @rule()
    def lower(self) -> None:
        self.job.lower()

    @rule(index=st.integers(0, MOST - 1))
    def run_one(self, index: int) -> None:
        self.job.run(index)

    @rule()
    def end(self) -> None:
        self.job.end()

    @rule(index=st.integers(0, MOST - 1))
    def fail(self, index: int) -> None:
        pod = self.job.pods.get(f"digits-worker-{index}")
        if pod is not None and pod.running:
            self.failed = True
            self.job.pods[pod.name] = replace(pod, phase="Failed", exit_code=137, reason="OOMKilled")

    @rule(index=st.integers(0, MOST - 1))
    def lose(self, index: int) -> None:
        """Delete a pod with a grace period of zero, as any user may."""
        self.failed = self.job.pods.pop(f"digits-worker-{index}", None) is not None or self.failed

    @rule(seconds=st.sampled_from([10, 101]))
    def wait(self, seconds: int) -> None:
        self.job.now += timedelta(seconds=seconds)

    def teardown(self) -> None:
        if not hasattr(self, "job"):
            return
        job = self.job
        for _ in range(30):
            job.now += timedelta(seconds=400)
            job.work()
            job.run()
            job.end()
            job.lower()
        found = job.known
        admission, scaling = found.admission, found.status.scaling
        assert admission is not None
        assert admission.workers is not None
        assert len(job.indexes()) == admission.workers >= self.least
        assert job.reservation == sizes.held(admission.workers, admission.grown or 0)
        assert admission.charge == sizes.charge(admission.workers)
        assert (scaling is not None) is (found.spec.worker_count > admission.workers)
        assert scaling is None or (scaling.to, scaling.victims, scaling.deadline) == (found.spec.worker_count, (), None)
        assert self.failed or (found.status.restart_count, found.status.disruptions) == (0, 0)
        assert found.status.phase == "Running"
        known, number = dict(job.starts), found.status.restart_generation
        assert {pod.restart for pod in job.pods.values()} == {number}
        pods = sorted(job.pods.values(), key=lambda each: pod_place.rank(each.place) if job.node_labels else each.index)
        for rank, pod in enumerate(pods):
            assert pod.place == known.get(pod.index, pod.place) == f"{rank} {admission.workers} {UID}-{number}"
            assert {pod.hosts} == job.hosts_of(pod)


Resized.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestResized = pytest.mark.proof(Resized.TestCase)
