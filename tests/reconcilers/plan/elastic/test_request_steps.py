"""The life of scale requests: grown, shrunk, timed out, deleted half-way, superseded, one after the other."""

from typing import Any

import pytest

from tests.support.reconcilers.builders import UID
from tests.support.reconcilers.requested import Requested, held, requested


def wish(job: Requested) -> int:
    return job.known.spec.worker_count


def test_scale_out_succeeds_once_all_added_workers_run() -> None:
    job = requested(2)
    job.ask("more", add=2)
    job.work()
    assert (wish(job), job.phase("more")) == (4, ("Admitted", ""))
    assert held(job, "more")
    scaling = job.known.status.scaling
    assert scaling is not None
    assert (scaling.from_workers, scaling.to, scaling.request) == (2, 4, "ScaleOut/more")
    job.give(4)
    job.work()
    assert job.phase("more") == ("Scaling", "")
    assert job.state("more").pods == ("digits-worker-2", "digits-worker-3")
    job.run(2)
    job.work()
    assert job.phase("more") == ("Scaling", ""), "only one of two workers runs"
    job.run()
    job.pass_time(7)
    job.work()
    status = job.state("more")
    assert (status.phase, status.from_workers, status.to, status.message) == (
        "Succeeded",
        2,
        4,
        "from 2 to 4 workers in 7 s",
    )
    assert {each.type: each.status for each in status.conditions} == {
        "Admitted": "False",
        "Scaling": "False",
        "Succeeded": "True",
    }
    assert not held(job, "more")
    assert any("requested by ScaleOut/more" in said for said in job.events)
    assert job.writes <= 4


@pytest.mark.parametrize(("change", "left"), [({"add": 2}, 5), ({"remove": 2}, 1)], ids=str)
def test_request_for_a_job_that_waits_only_changes_its_size(change: dict[str, Any], left: int) -> None:
    job = requested(3)
    job.lose_room()
    job.ask("r", **change)
    job.work()
    assert (wish(job), job.phase("r")) == (left, ("Succeeded", ""))


@pytest.mark.parametrize("change", [{"add": 2}, {"add": 0}, {"names": ["digits-worker-9"]}], ids=str)
def test_job_owns_its_requests(change: dict[str, Any]) -> None:
    """The job owns its requests, including requests that fail at once."""
    job = requested(2)
    job.ask("r", **change)
    job.work()
    (owner,) = job.asked["r"]["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "name": "digits",
        "uid": UID,
    }


def test_scale_out_without_room_is_undone_at_its_timeout() -> None:
    job = requested(2)
    job.ask("more", add=2, timeout=100)
    job.work()
    job.pass_time(99)
    job.work()
    assert (wish(job), job.phase("more")) == (4, ("Admitted", ""))
    job.pass_time(1)
    job.work()
    assert (wish(job), job.phase("more")) == (2, ("Failed", "TimedOut"))
    assert job.known.status.scaling is None
    assert job.indexes() == [0, 1]
    assert not held(job, "more")


def test_scale_out_that_does_not_join_loses_only_what_it_added() -> None:
    """Index 1 is free, so that one of the added workers has a lower index than workers that stay."""
    job = requested(4)
    job.ask("less", names=["digits-worker-1"])
    job.finish()
    assert job.indexes() == [0, 2, 3]
    job.ask("more", add=2, timeout=100)
    job.work()
    job.give(5)
    job.work()
    job.run(1)
    job.work()
    assert job.state("more").pods == ("digits-worker-1", "digits-worker-4")
    job.finish(100)
    assert (wish(job), job.phase("more")) == (3, ("Failed", "TimedOut"))
    assert job.indexes() == [0, 2, 3]
    assert job.reservation is not None
    assert job.reservation.size == 3
    assert job.known.status.phase == "Running"


def test_scale_out_that_joins_in_part_loses_all_that_it_added_and_only_that() -> None:
    """The first worker to join has a lower index than a worker that was there before."""
    job = requested(4, policy={"joinTimeoutSeconds": 50})
    job.ask("less", names=["digits-worker-1"])
    job.finish()
    job.ask("more", add=2, timeout=1000)
    job.work()
    job.give(5)
    job.work()
    job.run(1)
    job.pass_time(51)
    job.work()
    job.end()
    job.work()
    assert (job.indexes(), wish(job), job.phase("more")[0]) == ([0, 2, 3], 5, "Scaling")
    job.finish(1000)
    assert (job.indexes(), wish(job), job.phase("more")) == ([0, 2, 3], 3, ("Failed", "TimedOut"))


def test_growth_that_is_granted_during_the_rollback_is_declined() -> None:
    job = requested(2)
    job.ask("more", add=2, timeout=100)
    job.work()
    job.give(4)
    job.pass_time(100)
    job.finish()
    assert (wish(job), job.phase("more"), job.indexes()) == (2, ("Failed", "TimedOut"), [0, 1])


def test_part_of_a_scale_out_is_never_taken() -> None:
    job = requested(2)
    job.ask("more", add=2)
    job.work()
    job.give(3)
    job.work()
    assert job.indexes() == [0, 1]


def test_scale_in_by_number_succeeds_once_its_workers_are_gone() -> None:
    job = requested(4)
    job.ask("less", remove=2)
    job.work()
    assert job.phase("less") == ("Scaling", "")
    assert job.state("less").pods == ("digits-worker-3", "digits-worker-2")
    job.end()
    job.work()
    status = job.state("less")
    assert (status.phase, status.from_workers, status.to) == ("Succeeded", 4, 2)
    assert job.indexes() == [0, 1]


def test_scale_in_waits_for_the_survivors_to_run() -> None:
    job = requested(4)
    job.ask("less", remove=1)
    job.work()
    job.end()
    del job.pods["digits-worker-1"]
    job.work()
    assert job.phase("less")[0] == "Scaling"
    job.run()
    job.work()
    assert job.phase("less")[0] == "Succeeded"


def test_scale_in_by_name_takes_exactly_these() -> None:
    job = requested(5)
    uids = {name: pod.uid for name, pod in job.pods.items()}
    job.ask("less", names=["digits-worker-1", "digits-worker-3"])
    job.finish()
    assert job.phase("less")[0] == "Succeeded"
    assert {name: pod.uid for name, pod in job.pods.items()} == {
        name: uid for name, uid in uids.items() if name[-1] not in "13"
    }
    assert job.known.admission is not None
    assert job.known.admission.indexes == "0,2,4"
    job.ask("more", add=1)
    job.finish()
    assert job.indexes() == [0, 1, 2, 4], "a new worker gets the lowest free index"


def test_scale_in_by_name_takes_them_even_if_the_job_has_fewer_than_it_wants() -> None:
    job = requested(6, size=4)
    job.ask("less", names=["digits-worker-1", "digits-worker-2"])
    job.work()
    assert job.state("less").pods == ("digits-worker-1", "digits-worker-2")
    job.end()
    job.work()
    assert (wish(job), job.indexes(), job.phase("less")[0]) == (4, [0, 3], "Succeeded")


def test_named_worker_that_was_added_again_is_not_removed_again() -> None:
    job = requested(6, size=4)
    job.ask("less", names=["digits-worker-1", "digits-worker-2"])
    job.work()
    job.end()
    job.reconcile(1)
    job.finish()
    assert (job.indexes(), job.phase("less")[0]) == ([0, 1, 2, 3], "Succeeded")


def test_scale_in_that_takes_too_long_fails_and_goes_on() -> None:
    job = requested(4)
    job.ask("less", remove=1, timeout=100)
    job.work()
    job.pass_time(100)
    job.work()
    assert (wish(job), job.phase("less")) == (3, ("Failed", "TimedOut"))
    job.finish()
    assert job.indexes() == [0, 1, 2]


def test_requests_are_carried_out_one_at_a_time_oldest_first() -> None:
    job = requested(2)
    job.ask("b", add=1)
    job.pass_time(1)
    job.ask("a", add=1)
    job.ask("c", remove=1)
    job.work()
    assert [job.phase(name)[0] for name in "bac"] == ["Admitted", "Pending", "Pending"]
    assert job.state("a").message == "waits for ScaleOut/b"
    job.finish()
    assert [job.phase(name)[0] for name in "bac"] == ["Succeeded"] * 3
    assert [(job.state(name).from_workers, job.state(name).to) for name in "bac"] == [(2, 3), (3, 4), (4, 3)]


def test_wrong_request_fails_although_another_one_is_under_way() -> None:
    job = requested(2)
    job.ask("a", add=1)
    job.ask("b", add=0)
    job.work()
    assert (job.phase("a")[0], job.phase("b")) == ("Admitted", ("Failed", "InvalidCount"))


@pytest.mark.parametrize("change", [{"add": 2}, {"remove": 2}], ids=str)
def test_whoever_edits_the_size_in_the_meantime_wins(change: dict[str, Any]) -> None:
    job = requested(4)
    job.ask("r", **change)
    job.work()
    job.want(5)
    job.finish()
    assert (wish(job), job.phase("r")) == (5, ("Failed", "Superseded"))
    assert job.indexes() == [0, 1, 2, 3, 4]


def test_edit_back_to_the_former_size_wins_too() -> None:
    job = requested(4)
    job.ask("r", add=1)
    job.work()
    job.want(4)
    job.finish()
    assert (wish(job), job.phase("r")) == (4, ("Failed", "Superseded"))


def test_deleted_scale_out_is_undone() -> None:
    job = requested(2)
    job.ask("more", add=2)
    job.work()
    job.give(4)
    job.work()
    job.delete("more")
    job.finish()
    assert (wish(job), job.indexes(), job.asked) == (2, [0, 1], {})


def test_deleted_scale_in_goes_on() -> None:
    job = requested(4)
    job.ask("less", remove=2)
    job.work()
    job.delete("less")
    job.finish()
    assert (wish(job), job.indexes()) == (2, [0, 1])


def test_request_that_is_deleted_before_its_turn_is_not_begun() -> None:
    job = requested(2)
    job.ask("a", add=1)
    job.ask("b", add=1)
    job.work()
    job.delete("b")
    job.finish()
    assert (wish(job), job.phase("a")[0]) == (3, "Succeeded")


@pytest.mark.parametrize("steps", range(1, 4))
def test_scale_out_that_is_deleted_while_it_begins_changes_nothing(steps: int) -> None:
    """The request is deleted after each of the first writes: the finalizer, the size in the status, numTasks."""
    job = requested(2)
    job.ask("more", add=2)
    for _ in range(steps):
        job.reconcile(1)
    job.delete("more")
    job.finish()
    assert (wish(job), job.indexes(), job.asked) == (2, [0, 1], {})


def test_suspended_job_undoes_a_scale_out() -> None:
    job = requested(2)
    job.ask("more", add=2)
    job.work()
    job.suspend(True)
    job.work()
    assert (wish(job), job.phase("more")) == (2, ("Failed", "JobSuspended"))


def test_request_goes_after_its_time_to_live() -> None:
    job = requested(2)
    job.ask("less", remove=1, ttl=300)
    job.finish()
    assert job.plan().requeue_after == 300
    job.pass_time(299)
    job.work()
    assert job.phase("less")[0] == "Succeeded"
    job.pass_time(1)
    job.work()
    assert job.asked == {}


def test_request_of_another_job_of_the_same_name_is_left_alone() -> None:
    job = requested(2)
    job.ask("more", add=1)
    job.asked["more"]["metadata"]["ownerReferences"] = [{"kind": "TorchJob", "name": "digits", "uid": "another"}]
    job.work()
    assert (wish(job), job.phase("more")[0]) == (2, "")
