"""The world that follows from a change of the number of workers, and the generation that the new world begins."""

from typing import Any

import pytest

from crds.torchjob.status import Scaling, TorchJobStatus
from reconcilers.plan.elastic import change
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW

IN_PLACE: dict[str, Any] = {"torchElasticPolicy": {"numMinReplicas": 1, "mode": "InPlaceRestart"}}


def world(
    before: dict[str, Any], after: dict[str, Any], *, size: int = 3, policy: dict[str, Any] = IN_PLACE, **how: Any
) -> tuple[int, str | None]:
    """Return the generation and the named world after `scaling` and the number of workers have changed. The job begins
    in the first generation.
    """
    job = sizes.workers(9, sizes.granted("Running", size, 9, **before), **policy)
    number = after.pop("size", size)
    assert job.admission is not None
    scaling = Scaling(from_workers=2, to=9, since=NOW, **after) if after.pop("ended", True) else None
    admission = job.admission.model_copy(update={"workers": number})
    changed = job.status.model_copy(update={"admission": admission, "scaling": scaling})
    found = change.follow_world(job, changed, NOW, **how)
    return found.restart_generation, found.scaling.world if found.scaling is not None else None


def test_added_workers_wait_for_a_world_of_their_own() -> None:
    assert world({}, {"size": 5}) == (0, "0-2")
    assert world({"world": "0-1"}, {"size": 5}) == (0, "0-1"), "workers that were added before wait, too"


def test_waiting_workers_join_a_new_world_together() -> None:
    assert world({"world": "0-1"}, {}, join=True) == (1, None)
    assert world({}, {}, join=True) == (0, None), "no worker waits"


def test_removal_of_a_waiting_worker_leaves_the_world_as_it_is() -> None:
    assert world({"world": "0-1"}, {"victims": ("digits-worker-2",)}) == (0, None)
    assert world({"world": "0-1"}, {"victims": ("digits-worker-3",)}, size=4) == (0, "0-1")


def test_removal_of_another_worker_begins_a_world_without_it() -> None:
    assert world({}, {"victims": ("digits-worker-1",)}) == (1, None)
    assert world({"world": "0-1"}, {"victims": ("digits-worker-1",)}) == (1, "0")


def test_end_of_a_removal_changes_nothing_more() -> None:
    assert world({"victims": ["digits-worker-2"]}, {"size": 2}) == (0, None)


@pytest.mark.parametrize("policy", [{}, {"torchElasticPolicy": {"numMinReplicas": 1}}])
def test_other_jobs_have_no_worlds(policy: dict[str, Any]) -> None:
    assert world({}, {"victims": ("digits-worker-1",)}, policy=policy) == (0, None)


def test_job_runs_on_only_where_containers_can_be_restarted() -> None:
    job = sizes.workers(3, sizes.granted("Running", 3, 3), **IN_PLACE)

    def phase(*, in_place: bool) -> str:
        scaling = Scaling(from_workers=3, to=2, since=NOW, victims=("digits-worker-2",))
        after: TorchJobStatus = job.status.model_copy(update={"scaling": scaling})
        return change.follow_world(job, after, NOW, in_place=in_place).phase

    assert (phase(in_place=True), phase(in_place=False)) == ("Running", "Admitted")
