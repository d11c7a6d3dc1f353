"""A backup of queues and jobs is restored into a cluster that has lost them, with real processes."""

import contextlib
import json
from pathlib import Path
from typing import Any

import yaml

from crds import labels
from crds.api_resources import CONFIG_MAPS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from tests.support.acceptance.jobs import job, recording, spans
from tests.support.acceptance.stack import EVERYWHERE, Stack, fresh, run, until


def back_up(stack: Stack) -> str:
    """Return what `kubectl get tenantqueues,torchjobs -A -o yaml` prints."""
    items: list[Any] = [*stack.api.list(TENANT_QUEUES).items, *stack.api.list(TORCHJOBS).items]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})


def code(stack: Stack) -> list[Any]:
    """Return what `kubectl get configmaps -A -l train.distributed.io/code` lists."""
    return [each for each in stack.api.list(CONFIG_MAPS).items if labels.CODE in each["metadata"].get("labels", {})]


_OF_OBJECT = ("observedGeneration", "selector", "restoredFrom")


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Return the spec and the status of a job without the fields that name the object or its generation."""
    status = {name: value for name, value in found["status"].items() if name not in _OF_OBJECT}
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
    assert after["status"]["restoredFrom"]["uid"] == before["metadata"]["uid"]
    assert json.dumps(after["status"]).count(before["metadata"]["uid"]) == 1
    assert "0 restored" in stack.try_run("restore", str(file)).err


@EVERYWHERE
def test_a_restored_run_has_its_code_and_one_without_is_named(stack: Stack, tmp_path: Path) -> None:
    project, out, kept, lost = tmp_path / "project", tmp_path / "out", fresh("kept"), fresh("lost")
    project.mkdir()
    queue = fresh("queue")
    stack.torchq("queue", "create", queue, "--hold")
    for name in (kept, lost):
        (project / "train.py").write_text(f"open({str(out)!r}, 'a').write({name!r})")
        options = ("--name", name, "--queue", queue, "--image", "python")
        said = run("run", "-d", *options, "--", "python", "train.py", cwd=project, environment=stack.environment)
        assert said.code == 0, said
        stack.reach(name, "Queued")
    jobs, config_maps = tmp_path / "backup.yaml", tmp_path / "code.json"
    jobs.write_text(back_up(stack))
    mine = [each for each in code(stack) if each["metadata"]["ownerReferences"][0]["name"] == kept]
    assert len(mine) == 1
    config_maps.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": mine}))
    stack.clear()
    for each in code(stack):  # a real API server alone collects no garbage
        with contextlib.suppress(errors.NotFound):
            stack.api.delete(CONFIG_MAPS, each["metadata"]["name"], each["metadata"]["namespace"])
    said = stack.try_run("restore", str(jobs), str(config_maps))
    assert said.code == 1
    assert f"torchjob default/{kept}: waits again" in said.out
    assert f"torchjob default/{lost}: not restored: its code (ConfigMaps torchq-code-" in said.out
    [restored] = code(stack)
    uid = stack.job(kept)["metadata"]["uid"]
    assert [each["uid"] for each in restored["metadata"]["ownerReferences"]] == [uid]
    stack.torchq("queue", "resume", queue)
    stack.reach(kept, "Succeeded")
    assert out.read_text() == kept
    assert not stack.exists(lost)
