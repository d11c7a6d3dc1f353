"""A pod that a worker deleted on purpose does not count as lost."""

from typing import Any

from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, WriteStatus
from tests.support.reconcilers.builders import NOW, job, observe, pod, status

COUNTS = {"Master": {"active": 1, "ready": 1}, "Worker": {"active": 2, "ready": 2}}


def after(replacing: list[str], *missing: str) -> tuple[dict[str, Any], list[str]]:
    """Return the status change of a running job without the missing pods, and the names of the pods created."""
    running = job(status=status("Running", taskStatuses=COUNTS, replacing=replacing))
    there = [each for each in (pod("Master"), pod("Worker", 0), pod("Worker", 1)) if each.uid not in missing]
    decided = plan(observe(running, *there), ReconcileSettings(master_address="loopback"), NOW)
    written: dict[str, Any] = {}
    made: list[str] = []
    for action in decided.actions:
        match action:
            case WriteStatus(change, _):
                written |= change["status"]
            case CreatePods(manifests):
                made += [each["metadata"]["name"] for each in manifests]
    return written, made


def test_requested_replacement_is_created_alone() -> None:
    written, made = after(["worker-0"], "worker-0")
    assert written.get("disruptions", 0) == 0
    assert "restartGeneration" not in written
    assert made == ["digits-worker-0"]


def test_loss_beside_requested_replacement_is_a_disruption() -> None:
    written, _ = after(["worker-0"], "worker-0", "worker-1")
    assert (written["disruptions"], written["restartGeneration"]) == (1, 1)


def test_loss_without_request_is_a_disruption() -> None:
    written, _ = after([], "worker-0")
    assert (written["disruptions"], written["restartGeneration"]) == (1, 1)


def test_replacement_still_to_come_does_not_excuse_other_loss() -> None:
    written, _ = after(["worker-1"], "worker-0")
    assert written["disruptions"] == 1
