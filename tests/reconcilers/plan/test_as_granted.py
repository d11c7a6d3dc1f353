"""Jobs that are admitted with fewer workers than they request, and everything that counts their pods."""

from dataclasses import replace
from typing import Any

import pytest

from reconcilers.plan.ending import has_succeeded
from reconcilers.plan.lifecycle import Active, current_admission, job_state
from reconcilers.plan.moment import Moment
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods
from tests.reconcilers.plan.test_plan import decide, deleted, kinds, made, written
from tests.support.reconcilers.builders import ADMISSION, NOW, observe, pod, status
from tests.support.reconcilers.sizes import ELASTIC, RANGED, charge, granted, held, workers


class TestAdmission:
    @pytest.mark.parametrize("spec", [RANGED, ELASTIC])
    @pytest.mark.parametrize(("size", "expected"), [(1, 0), (2, 2), (3, 3), (4, 4), (6, 6), (8, 0)])
    def test_job_is_admitted_with_each_size_of_its_range(self, spec: dict[str, Any], size: int, expected: int) -> None:
        if "torchElasticPolicy" in spec and size % 2:
            expected = 0  # the size is between two steps
        found = decide(observe(workers(6, status("Queued"), **spec), reservation=held(size)))
        assert len(made(found)) == expected
        if expected:
            admission = written(found)["admission"]
            assert (admission["workers"], admission["grown"], admission["charge"]) == (size, 0, charge(size))

    def test_reservation_of_another_charge_than_that_of_its_size_grants_nothing(self) -> None:
        waiting = workers(6, status("Queued"), **RANGED)
        assert current_admission(waiting, held(4)) is not None
        assert current_admission(waiting, replace(held(4), charge=charge(6))) is None

    def test_reservation_without_the_required_domain_grants_nothing(self) -> None:
        policy = {"schedulingPolicy": {"topology": {"required": "rack"}}}
        waiting = workers(6, status("Queued"), **RANGED, **policy)
        for nodes in ("", "0=n1*4", "in:block=b1 0=n1*4"):
            assert current_admission(waiting, replace(held(4), nodes=nodes)) is None
        found = current_admission(waiting, replace(held(4), nodes="in:rack=r1 0=n1*4"))
        assert found is not None
        assert found.domain == "rack=r1"

    def test_job_without_range_records_no_number_of_workers(self) -> None:
        found = decide(observe(workers(3, status("Queued")), reservation=replace(held(3), size=0)))
        assert not written(found)["admission"].keys() & {"workers", "grown"}


class TestAsGranted:
    def test_only_granted_workers_are_created_and_judged(self) -> None:
        running = workers(4, granted("Running", 2, 4), **RANGED)
        assert not decide(observe(running, pod("Worker", 0), pod("Worker", 1), reservation=held(2))).actions
        assert made(decide(observe(running, pod("Worker", 0), reservation=held(2)))) == ["digits-worker-1"]

    def test_granted_indexes_may_have_holes(self) -> None:
        running = workers(4, granted("Running", 2, 4, "1,3"), **ELASTIC)
        assert made(decide(observe(running, reservation=held(2)))) == ["digits-worker-1", "digits-worker-3"]

    def test_no_store_is_created_under_an_admission_that_did_not_pay_for_it(self) -> None:
        running = workers(2, status("Running"), torchElasticPolicy={})
        assert running.admission is not None
        assert running.admission.grown is None
        assert made(decide(observe(running))) == ["digits-worker-0", "digits-worker-1"]

    def test_job_runs_with_its_least_number_of_workers(self) -> None:
        admitted = workers(6, granted("Admitted", 4, 6), **ELASTIC)
        pods = [pod("Worker", index, "Running" if index < 2 else "Pending") for index in range(4)]
        assert written(decide(observe(admitted, *pods, reservation=held(4))))["phase"] == "Running"

    @pytest.mark.parametrize(
        ("size", "third", "succeeds"),
        [(2, None, True), (3, "Running", False), (3, "Failed", False), (3, "Succeeded", True), (3, "Pending", True)],
    )
    def test_job_succeeds_with_the_granted_workers_that_have_begun(
        self, size: int, third: str | None, succeeds: bool
    ) -> None:
        running = workers(4, granted("Running", size, 4), **RANGED)
        pods = [pod("Worker", index, "Succeeded") for index in range(2)]
        pods += [pod("Worker", 2, third)] if third else []
        assert running.admission is not None
        assert has_succeeded(Grant(running, running.admission), tuple(pods)) is succeeds

    def test_success_of_a_pod_that_was_not_granted_does_not_count(self) -> None:
        running = workers(4, granted("Running", 2, 4), **RANGED)
        assert running.admission is not None
        pods = (pod("Worker", 0), pod("Worker", 1, "Succeeded"), pod("Worker", 2, "Succeeded"))
        assert not has_succeeded(Grant(running, running.admission), pods)

    @pytest.mark.parametrize(
        ("spec", "indexes", "ranks", "world"),
        [
            (RANGED, None, [0, 1], 4),
            (RANGED, "0,2", [0, 2], 4),
            (ELASTIC, None, [0, 1], 2),
            (ELASTIC, "0,2", [0, 1], 2),
        ],
    )
    def test_ranks_of_a_job_that_is_not_elastic_are_those_of_all_workers(
        self, spec: dict[str, Any], indexes: str | None, ranks: list[int], world: int
    ) -> None:
        running = workers(4, granted("Running", 2, 4, indexes), **spec)
        settings = ReconcileSettings(admission_timeout=0.0)
        active = job_state(running, Moment(observe(running, reservation=held(2)), settings, NOW))
        assert isinstance(active, Active)
        assert [(each.rank, each.world_size) for each in active.members.values()] == [(rank, world) for rank in ranks]

    def test_admission_of_older_version_grants_all_workers(self) -> None:
        running = workers(3, status("Running", admission=ADMISSION | {"charge": charge(3)}), **RANGED)
        assert len(made(decide(observe(running, reservation=replace(held(3), size=0))))) == 3


class TestPodsThatWereNotGranted:
    def test_surplus_pod_is_deleted_while_the_job_goes_on(self) -> None:
        running = workers(4, granted("Running", 2, 4), **RANGED)
        found = decide(observe(running, pod("Worker", 0), pod("Worker", 3), reservation=held(2)))
        assert (made(found), deleted(found)) == (["digits-worker-1"], ["digits-worker-3"])
        assert not written(found)

    def test_terminating_surplus_pod_holds_up_nothing(self) -> None:
        admitted = workers(4, granted("Admitted", 2, 4), **RANGED)
        pods = (pod("Worker", 0), pod("Worker", 1), pod("Worker", 3, deleting=True))
        found = decide(observe(admitted, *pods, reservation=held(2)))
        assert (written(found)["phase"], kinds(found)) == ("Running", ["WriteStatus"])

    def test_failure_of_surplus_pod_counts_nothing(self) -> None:
        running = workers(4, granted("Running", 2, 4), **RANGED)
        pods = (pod("Worker", 0), pod("Worker", 1), pod("Worker", 3, "Failed", exit_code=1))
        found = decide(observe(running, *pods, reservation=held(2)))
        assert (kinds(found), deleted(found)) == (["DeletePods"], ["digits-worker-3"])

    def test_all_pods_end_with_a_job_that_is_sent_back(self) -> None:
        """A surplus pod still takes room when the others do not exist: the room is given back after the end of this
        pod.
        """
        late = granted("Admitted", 2, 4)
        late["conditions"][0]["reason"] = "NotRunningInTime"
        found = decide(observe(workers(4, late, **RANGED), pod("Worker", 3, deleting=True), reservation=held(2)))
        assert "admission" not in written(found)
        assert not any(isinstance(action, CreatePods) for action in found.actions)
