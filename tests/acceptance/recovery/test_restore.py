"""A backup of queues and jobs that is restored into a cluster which has lost them, with real processes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from tests.support.acceptance.jobs import job, recording, spans
from tests.support.acceptance.stack import EVERYWHERE, Stack, fresh, until

pytestmark = pytest.mark.acceptance


def back_up(stack: Stack) -> str:
    """Return what `kubectl get tenantqueues,torchjobs -A -o yaml` prints."""
    items: list[Any] = [*stack.api.list(TENANT_QUEUES).items, *stack.api.list(TORCHJOBS).items]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Return the spec and the status of a job without what names the object or its generation."""
    status = {name: value for name, value in found["status"].items() if name not in ("observedGeneration", "selector")}
    status["conditions"] = [
        {name: value for name, value in each.items() if name != "observedGeneration"} for each in status["conditions"]
    ]
    return {"spec": found["spec"], "status": status}


@EVERYWHERE
def test_a_restored_cluster_runs_waiting_jobs_and_no_finished_job_again(
    stack: Stack, records: Path, tmp_path: Path
) -> None:
    ended, late, paused = fresh("ended"), fresh("late"), fresh("paused")
    stack.torchq("queue", "create", "later", "--hold")
    stack.submit(
        job(ended, recording(records)),
        job(late, recording(records), queue="later"),
        job(paused, recording(records), suspend=True),
    )
    before = stack.reach(ended, "Succeeded")
    stack.reach(late, "Queued")
    stack.reach(paused, "Suspended")
    file = tmp_path / "backup.yaml"
    file.write_text(back_up(stack))
    stack.clear()
    said = stack.torchq("restore", str(file))
    assert f"torchjob default/{ended}: restored as it ended, Succeeded" in said
    stack.torchq("queue", "resume", "later")
    stack.reach(late, "Succeeded")
    until(lambda: stack.phase(paused) == "Suspended")
    assert {span.job: len(span.starts) for span in spans(records)} == {ended: 1, late: 1}
    after = stack.job(ended)
    assert comparable(after) == comparable(before)
    assert after["status"]["observedGeneration"] == after["metadata"]["generation"]
    assert json.dumps(after["status"]).count(before["metadata"]["uid"]) == 0
    assert "0 restored" in stack.try_run("restore", str(file)).err
