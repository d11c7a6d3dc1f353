"""How jobs end that are cancelled or give a result, and the events of these jobs, on a cluster of real processes."""

import json
from pathlib import Path

from crds.api_resources import EVENTS, PODS, TORCHJOBS
from tests.support.acceptance.jobs import job, python, recording
from tests.support.acceptance.stack import Stack, fresh, until

RESULT = """
import json, os
from pathlib import Path
Path(os.environ["TORCHQ_RESULT_FILE"]).write_text(json.dumps({"torchq-result": {"accuracy": 0.95}}))
"""


def told(stack: Stack, name: str) -> set[str]:
    """Return the reasons of the events of a job."""
    uid = stack.job(name)["metadata"]["uid"]
    found = stack.api.list(EVENTS, "default", field_selector=f"involvedObject.uid={uid}").items
    return {each["reason"] for each in found}


def test_cancelled_jobs_end_and_free_their_room_for_the_next_one(stack: Stack, records: Path, tmp_path: Path) -> None:
    queue, runs, waits, after = fresh("queue"), fresh(), fresh(), fresh()
    stack.torchq("queue", "create", queue, "--quota", "jobs=1")
    stack.submit(job(runs, recording(records, gate=tmp_path / "never"), queue=queue))
    stack.reach(runs, "Running")
    stack.submit(job(waits, python("pass"), queue=queue), job(after, python(RESULT), queue=queue))
    for name in (waits, runs):
        stack.api.patch(TORCHJOBS, name, {"spec": {"cancel": True}}, "default")
        status = stack.reach(name, "Failed")["status"]
        assert [each["reason"] for each in status["conditions"] if each["status"] == "True"] == ["Cancelled"]
    ended = stack.reach(after, "Succeeded")
    assert json.loads(ended["status"]["result"]) == {"accuracy": 0.95}
    until(lambda: not [each for each in stack.api.list(PODS, "default").items if runs in each["metadata"]["name"]])
    until(lambda: told(stack, runs), lambda reasons: {"Admitted", "Running", "Cancelled"} <= reasons)
    until(lambda: told(stack, after), lambda reasons: {"Admitted", "Succeeded"} <= reasons)
