"""A job whose code cannot start ends with its second attempt."""

from typing import Any

import pytest

from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import WriteStatus
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import NOW, job, observe, pod, status, task

T = NOW.timestamp()
IMPORT = "ImportError: cannot import name 'Trainer'"
WORKERS = {"Worker": task(2)}
ELASTIC = {"torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 4, "maxRestarts": 2}}


def failed(restart: int, seconds: float = 5, **fields: Any) -> PodView:
    """Return a worker that has failed some seconds after its start."""
    how = {"message": IMPORT, "reason": "Error", "exit_code": 1, **fields}
    return pod("Worker", 0, "Failed", restart=restart, since=T - 60 - seconds, ended=T - 60, **how)


def settle(of: TorchJob, worker: PodView) -> TorchJob:
    """Return the job after the failure of a worker is handled, with a status as if the job ran again."""
    others = [pod("Worker", 1, restart=worker.restart)]
    others += [pod("Rendezvous", restart=worker.restart)] if of.spec.rendezvous else []
    found = plan(observe(of, worker, *others), ReconcileSettings(in_place="recreate"), NOW)
    (change,) = [action.change["status"] for action in found.actions if isinstance(action, WriteStatus)]
    again = {"phase": "Running", "conditions": status("Running")["conditions"]}
    merged = of.status.manifest() | change | ({} if change.get("phase") == "Failed" else again)
    kept = {name: value for name, value in merged.items() if value is not None}
    return of.model_copy(update={"status": TorchJobStatus.model_validate(kept)})


def twice(first: PodView, second: PodView, admission: Any = None, **spec: Any) -> TorchJob:
    given = {"admission": status("Running")["admission"] | (admission or {})}
    return settle(settle(job(WORKERS, status("Running", **given), restartScope="Job", **spec), first), second)


def test_same_exception_in_two_attempts_fails_the_job_and_says_why() -> None:
    once = settle(job(WORKERS, status("Running")), failed(0))
    assert (once.status.phase, once.status.restart_count) == ("Running", 1)
    ended = settle(once, failed(1)).status
    assert ended.phase == "Failed"
    condition = next(each for each in ended.conditions if each.type == "Failed")
    assert condition.reason == "PodFailed"
    assert IMPORT in condition.message
    assert "set backoffLimit for more" in condition.message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (failed(0), failed(1, message="OSError: no space left")),
        (failed(0), failed(1, seconds=61)),
        (failed(0, seconds=61), failed(1)),
        (failed(0, exit_code=137), failed(1, exit_code=137)),
        (failed(0, lost_peer=True), failed(1, lost_peer=True)),
        (failed(0, cause=137), failed(1, cause=137)),
        (failed(0, message=""), failed(1, message="")),
    ],
    ids=["another", "ran first", "ran", "killed", "lost a peer", "torchrun was told", "silent"],
)
def test_other_failures_are_retried(first: PodView, second: PodView) -> None:
    assert (twice(first, second).status.phase, twice(first, second).status.restart_count) == ("Running", 2)


def test_number_of_attempts_that_the_owner_has_set_is_honoured() -> None:
    assert twice(failed(0), failed(1), backoffLimit=6).status.phase == "Running"


def test_job_that_has_made_a_step_is_retried() -> None:
    once = settle(job(WORKERS, status("Running")), failed(0))
    moved = {"reported": {"run": once.status.run, "moved": True}}
    stepped = once.model_copy(update={"status": TorchJobStatus.model_validate(once.status.manifest() | moved)})
    assert settle(stepped, failed(1)).status.phase == "Running"


@pytest.mark.parametrize(("seconds", "phase"), [(179, "Failed"), (181, "Running")])
def test_each_restart_of_torchrun_has_a_minute(seconds: float, phase: str) -> None:
    admission = {"workers": 2, "grown": 0}
    found = twice(failed(0, seconds, cause=1), failed(1, seconds, cause=1), admission, **ELASTIC)
    assert found.status.phase == phase
