"""The patch between two statuses."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob.status import TaskStatus
from reconcilers.plan import status
from reconcilers.values import WriteStatus
from tests.support.reconcilers.builders import NOW, all_pods, job, pod
from tests.support.reconcilers.builders import status as status_of
from tests.support.reconcilers.simulation import merged

values: Any = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(objects, objects)
def test_difference_merged_into_before_gives_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert merged(before, status.difference(before, after)) == after


@given(objects)
def test_difference_of_equal_objects_is_empty(before: dict[str, Any]) -> None:
    assert status.difference(before, before) == {}


def test_patch_removes_amounts_of_the_old_charge() -> None:
    admitted = job(status=status_of("Admitted"))
    assert admitted.admission is not None
    other = admitted.admission.model_copy(update={"charge": {"jobs": 1, "memory": 5}})
    change = status.patch_from(admitted.status, status.admit(admitted, other, NOW))
    assert change["admission"]["charge"] == {"memory": 5, "cpu": None, "pods": None}


def test_count_pods_counts_by_task_and_phase() -> None:
    evicted = pod("Worker", 0, "Failed", reason="Evicted")
    found = status.count_pods(job(), (pod(), evicted, pod("Worker", 1, "Succeeded")))
    assert found == {
        "Master": TaskStatus(active=1, ready=1),
        "Worker": TaskStatus(succeeded=1, evicted=1),
    }


def test_patch_is_empty_if_only_counts_changed() -> None:
    running = job(status=status_of("Running"))
    counted = running.status.model_copy(update={"task_statuses": status.count_pods(running, all_pods())})
    assert status.patch_from(running.status, counted) == {}


def test_counts_alone_are_written_once_when_all_pods_of_a_running_task_exist() -> None:
    counts = {"Master": {"active": 1, "ready": 1}, "Worker": {"active": 1, "ready": 1}}
    running = job(status=status_of("Running", taskStatuses=counts))
    assert status.write(running, running.status, all_pods()[:2], NOW) == ()
    (written,) = status.write(running, running.status, all_pods(), NOW)
    assert isinstance(written, WriteStatus)
    assert written.change == {"status": {"taskStatuses": {"Worker": {"active": 2, "ready": 2}}}}
    after = job(status=status_of("Running", taskStatuses={**counts, "Worker": {"active": 2, "ready": 2}}))
    assert status.write(after, after.status, all_pods(), NOW) == ()
    assert status.write(after, after.status, all_pods()[:2], NOW) == (), "a pod that is missing later counts as lost"
