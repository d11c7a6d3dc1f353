"""The requests of pods as the API server created them, compared with the charge of their job."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.resources.amounts import Amounts, add
from crds.torchjob import demand, torchjob
from crds.torchjob.status import PodMeasurements
from crds.torchjob.torchjob import TorchJob
from queues.values import Refusal
from reconcilers.plan.plan import plan
from reconcilers.pods import measure
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, DeletePods, EmitEvent, NoRoom, Observation, Plan, RaiseCharge, WriteStatus
from reconcilers.views import containers, pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import builders
from tests.support.reconcilers.adding import Adding
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import ADMISSION, NOW, RESERVATION, job, observe, pod, status, task

GPU = "nvidia.com/gpu"
CHARGED = {"jobs": 1, "pods": 3, "cpu": 3000}
LARGE = (("cpu", 1000), (GPU, 8), ("pods", 1))


def measured(found: TorchJob, **pods: dict[str, int]) -> dict[str, Any]:
    return {"templates": found.spec.digest, "pods": pods}


def decide(observation: Observation) -> Plan:
    return plan(observation, ReconcileSettings(), NOW)


def kinds(found: Plan) -> list[str]:
    return [type(each).__name__ for each in found.actions]


def change(found: Plan) -> dict[str, Any]:
    (written,) = (each.change["status"] for each in found.actions if isinstance(each, WriteStatus))
    return dict(written)


ADMITTED = job(status=status("Admitted"))


class TestExcess:
    def test_pods_within_their_share_have_no_excess(self) -> None:
        assert (
            measure.find_excess(
                ADMITTED, CHARGED, [pod(requests=(("cpu", 1000),)), pod("Worker", requests=(("cpu", 1),))]
            )
            is None
        )
        assert measure.find_excess(ADMITTED, CHARGED, []) is None

    def test_excess_of_one_pod_counts_for_all_pods_of_its_task(self) -> None:
        found = measure.find_excess(ADMITTED, CHARGED, [pod(requests=(("cpu", 1000),)), pod("Worker", requests=LARGE)])
        assert found is not None
        assert found.charge == {**CHARGED, GPU: 16}
        assert found.more == {GPU: 16}
        assert found.measured == PodMeasurements(templates=ADMITTED.spec.digest, pods={"Worker": dict(LARGE)})
        assert str(found) == (
            "as the API server created them, its pods request more than their templates: nvidia.com/gpu 16 more"
        )

    def test_new_measurements_are_added_to_recorded_ones(self) -> None:
        known = job(status=status("Admitted", measured=measured(ADMITTED, Worker={GPU: 8})))
        paid = {**CHARGED, GPU: 16}
        assert measure.find_excess(known, paid, [pod("Worker", requests=LARGE)]) is None
        found = measure.find_excess(known, paid, [pod(requests=((GPU, 1),)), pod("Worker", requests=LARGE)])
        assert found is not None
        assert found.charge == {**CHARGED, GPU: 17}
        assert found.measured.pods == {"Worker": {GPU: 8}, "Master": {GPU: 1}}

    def test_charge_that_covers_all_pods_has_no_excess(self) -> None:
        assert measure.find_excess(ADMITTED, {**CHARGED, GPU: 16}, [pod("Worker", requests=LARGE)]) is None

    def test_measurements_hold_only_for_unchanged_templates(self) -> None:
        known = status("Queued", measured=measured(ADMITTED, Worker={GPU: 8}))
        assert job(status=known).charge == {**CHARGED, GPU: 16}
        assert job(status=known, suspend=True, backoffLimit=3).charge == {**CHARGED, GPU: 16}
        edited = {"Master": task(), "Worker": task(2, template=builders.template(env=[]), dependsOn=[])}
        assert job(edited, status=known).charge == CHARGED
        larger = {"Master": task(), "Worker": task(5, dependsOn=[])}
        assert job(larger, status=known).charge == {"jobs": 1, "pods": 6, "cpu": 6000, GPU: 40}

    @given(
        asked=st.lists(
            st.tuples(
                st.sampled_from(["Master", "Worker"]),
                st.dictionaries(st.sampled_from(["cpu", GPU, "memory"]), st.integers(1, 5000)),
            ),
            max_size=6,
        )
    )
    def test_raised_charge_covers_all_pods_without_excess(self, asked: list[tuple[str, Amounts]]) -> None:
        pods = [pod(kind, requests=tuple(sorted(amounts.items()))) for kind, amounts in asked]
        found = measure.find_excess(ADMITTED, CHARGED, pods)
        charge = CHARGED if found is None else found.charge
        worst = {
            kind: {name: max([0, *(each.get(name, 0) for of, each in asked if of == kind)]) for name in ("cpu", GPU)}
            for kind in ("Master", "Worker")
        }
        needed = add(worst["Master"], {name: 2 * amount for name, amount in worst["Worker"].items()})
        assert all(charge.get(name, 0) >= amount for name, amount in needed.items())
        if found is not None:
            after = ADMITTED.model_copy(
                update={"status": ADMITTED.status.model_copy(update={"measured": found.measured})}
            )
            assert all(charge[name] >= amount for name, amount in after.charge.items())
            assert measure.find_excess(after, charge, pods) is None

    def test_excess_beyond_the_largest_charge_is_uncountable(self) -> None:
        many = {"spec": {"containers": [{"name": "c", "resources": {"requests": {f"a.b/r{n}": 1 for n in range(99)}}}]}}
        for asks in (containers.read(many["spec"]), ((GPU, demand.LARGEST),)):
            found = measure.find_excess(ADMITTED, CHARGED, [pod("Worker", requests=asks)])
            assert found is not None
            assert found.uncountable
            assert torchjob.parse(builders.manifest(status=status("Queued", measured=found.measured.manifest())))
        exact = measure.find_excess(ADMITTED, CHARGED, [pod(requests=((GPU, demand.LARGEST),))])
        assert exact is not None
        assert not exact.uncountable


class TestPlan:
    def test_first_pod_of_each_task_is_created_before_the_others(self) -> None:
        first, rest = (
            [each["metadata"]["name"] for each in action.manifests]
            for action in decide(observe(ADMITTED)).actions
            if isinstance(action, CreatePods)
        )
        assert first == ["digits-master-0", "digits-worker-0"]
        assert rest == ["digits-worker-1"]

    def test_charge_is_raised_before_anything_else_for_larger_pod(self) -> None:
        found = decide(observe(ADMITTED, pod(), pod("Worker", requests=LARGE)))
        assert kinds(found) == ["RaiseCharge", "WriteStatus"]
        assert found.actions[0] == RaiseCharge(1, {**CHARGED, GPU: 16})
        assert found.requeue_after == 0.0
        after = change(found)
        assert after["admission"] == {"charge": {GPU: 16}}
        assert after["measured"] == measured(ADMITTED, Worker=dict(LARGE))

    def test_other_pods_get_their_share_of_raised_charge(self) -> None:
        raised = status(
            "Admitted",
            admission={**ADMISSION, "charge": {**CHARGED, GPU: 16}},
            measured=measured(ADMITTED, Worker=dict(LARGE)),
        )
        found = decide(observe(job(status=raised), pod(), pod("Worker", requests=LARGE)))
        (create,) = (each for each in found.actions if isinstance(each, CreatePods))
        (made,) = create.manifests
        assert made["metadata"]["annotations"]["train.distributed.io/charge"] == (
            '{"cpu":1000,"nvidia.com/gpu":8,"pods":1}'
        )

    @pytest.mark.parametrize(
        ("by", "room"),
        [("quota", "the quota of queue team"), ("cohort", "the cohort of queue team"), ("pool", "the pool")],
    )
    def test_job_without_room_for_its_excess_loses_its_pods(self, by: Any, room: str) -> None:
        found = decide(replace(observe(ADMITTED, pod(), pod("Worker", requests=LARGE)), obstacle=NoRoom(by)))
        assert kinds(found) == ["WriteStatus", "DeletePods"]
        after = change(found)
        (said,) = (each for each in after["conditions"] if each["type"] == "Admitted")
        assert said["reason"] == "ExceedsQuota"
        assert "nvidia.com/gpu 16 more" in said["message"]
        assert room in said["message"]
        assert after["measured"] == measured(ADMITTED, Worker=dict(LARGE))
        assert after["restartGeneration"] == 1, "its pods belong to an earlier restart"

    def test_uncharged_pods_are_deleted_with_at_most_30_seconds_grace(self) -> None:
        large = pod("Worker", requests=LARGE, grace=3600)
        found = decide(replace(observe(ADMITTED, pod(grace=30), large), obstacle=NoRoom("quota")))
        deleted = {each.name: action.seconds for action in found.actions if isinstance(action, DeletePods)
                   for each in action.pods}  # fmt: skip
        assert deleted == {"digits-master-0": None, "digits-worker-0": 30}
        (said,) = (each.message for each in found.actions if isinstance(each, EmitEvent))
        assert "they take more resources than the job is charged for" in said
        leaving = status("Admitted", restartGeneration=1)
        leaving["conditions"][0] |= {"reason": "ExceedsQuota", "message": "GPUs"}
        (again,) = decide(observe(job(status=leaving), large)).actions[:1]
        assert isinstance(again, DeletePods)
        assert again.seconds == 30

    def test_job_is_queued_with_measured_requests_once_its_pods_are_deleted(self) -> None:
        leaving = status("Admitted", restartGeneration=1, measured=measured(ADMITTED, Worker={GPU: 8}))
        leaving["conditions"][0] |= {"reason": "ExceedsQuota", "message": "GPUs, 16 more"}
        left = decide(observe(job(status=leaving), pod(deleting=True), pod("Worker", 1)))
        assert kinds(left) == ["DeletePods"], "the message is told once"
        found = decide(observe(job(status=leaving)))
        after = change(found)
        assert (after["phase"], after["admission"]) == ("Queued", None)
        assert "measured" not in after, "kept"
        (said,) = (each for each in after["conditions"] if each["type"] == "Queued")
        assert (said["reason"], said["message"]) == ("ExceedsQuota", "GPUs, 16 more")
        assert [each.reason for each in found.actions if isinstance(each, EmitEvent)] == ["ExceedsQuota"]

    def test_measured_job_is_admitted_only_with_its_measured_charge(self) -> None:
        waits = job(status=status("Queued", attempt=1, measured=measured(ADMITTED, Worker={GPU: 8})))
        small = replace(RESERVATION, attempt=2)
        assert not decide(observe(waits, reservation=small)).actions, "the pick was made before the job was measured"
        large = replace(small, charge={**CHARGED, GPU: 16})
        assert change(decide(observe(waits, reservation=large)))["admission"]["charge"] == {**CHARGED, GPU: 16}

    def test_job_with_uncountable_requests_fails(self) -> None:
        found = decide(observe(ADMITTED, pod("Worker", requests=((GPU, demand.LARGEST),))))
        after = change(found)
        assert after["phase"] == "Failed"
        assert any(each["reason"] == "InvalidTemplate" for each in after["conditions"])
        assert any(isinstance(each, DeletePods) for each in found.actions)


class TestOnAServer:
    """The sequence on an API server: pods, the answer of the store, the status of the job."""

    @pytest.fixture
    def asked(self) -> list[tuple[int, Amounts]]:
        return []

    def go(self, bench: Bench, asked: list[tuple[int, Amounts]], answer: Refusal, times: int = 1) -> float | None:
        """Reconcile with this answer of the store."""

        def raise_charge(_key: Any, _token: str, attempt: int, charge: Amounts) -> Refusal:
            asked.append((attempt, charge))
            return answer

        return bench.reconcile(times=times, raise_charge=raise_charge)

    def start(self, bench: Bench, **added: Any) -> None:
        bench.submit({"Master": task(), "Worker": task(4, dependsOn=[])})
        bench.pick()
        bench.counting._cluster = Adding(bench.counting._cluster, **added)

    def test_no_second_pod_of_task_is_created_before_charge_is_raised(
        self, bench: Bench, asked: list[tuple[int, Amounts]]
    ) -> None:
        self.start(bench, memory="1Gi")
        assert self.go(bench, asked, "") == 0.0
        assert 1 <= len(bench.names()) <= 2
        assert asked == []
        self.go(bench, asked, "")
        assert asked == [(1, {"jobs": 1, "pods": 5, "cpu": 5000, "memory": 2**30 * (4 * len(worker(bench)) + 1)})]
        before = bench.names()
        self.go(bench, asked, "", times=4)
        assert len(bench.names()) == 5
        assert before == [each for each in bench.names() if each in before]
        admission = bench.job.admission
        assert admission is not None
        assert admission.charge == bench.job.charge == {"jobs": 1, "pods": 5, "cpu": 5000, "memory": 5 * 2**30}

    @pytest.mark.parametrize("refused", ["quota", "cohort", "pool"])
    def test_job_without_room_is_sent_back_before_another_pod_is_created(
        self, bench: Bench, asked: list[tuple[int, Amounts]], refused: Refusal
    ) -> None:
        self.start(bench, memory="1Gi")
        self.go(bench, asked, refused)
        made = bench.names()
        assert len(made) <= 2
        self.go(bench, asked, refused)
        assert len(asked) == 1
        assert bench.true_condition("Admitted")[0] == "ExceedsQuota"
        bench.remove(*made)
        self.go(bench, asked, refused)
        assert bench.names() == []
        found = bench.job
        assert (found.status.phase, found.admission) == ("Queued", None)
        reason, message = bench.true_condition("Queued")
        assert reason == "ExceedsQuota"
        assert "memory" in message
        assert found.charge["memory"] > 0
        assert bench.counting.calls["create Pod"] == len(made)

    def test_reconcile_with_lost_reservation_writes_nothing(
        self, bench: Bench, asked: list[tuple[int, Amounts]]
    ) -> None:
        self.start(bench, memory="1Gi")
        self.go(bench, asked, "reservation")
        before = bench.raw()
        assert self.go(bench, asked, "reservation") == 0.0
        assert bench.raw() == before
        assert len(asked) == 1

    def test_charge_is_not_raised_when_server_adds_nothing(
        self, bench: Bench, asked: list[tuple[int, Amounts]]
    ) -> None:
        self.start(bench)
        self.go(bench, asked, "quota", times=3)
        assert len(bench.names()) == 5
        assert asked == []
        assert bench.job.status.measured is None


def worker(bench: Bench) -> list[str]:
    return [name for name in bench.names() if "worker" in name]


def test_pod_requests_include_limits_and_overhead() -> None:
    view: PodView = pod_view.trim(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {}, "labels": {}},
            "spec": {
                "containers": [{"name": "c", "resources": {"limits": {GPU: 8}}}],
                "overhead": {"cpu": "250m"},
            },
        }
    )
    assert dict(view.requests).items() >= {"cpu": 250, GPU: 8}.items()
