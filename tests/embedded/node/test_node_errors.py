"""Errors of one pod: other pods of the node keep running, and the error ends when its cause is removed."""

import pytest

from crds import labels
from crds.api_resources import NODES, PODS
from embedded.node.runs import shim
from tests.support.embedded.stage import Stage
from tests.support.waiting import until

SLEEP = ("sleep", "600")


def errors_of(stage: Stage) -> dict[str, str]:
    """Return the node condition that lists skipped pods, or an empty dictionary."""
    found = stage.cluster.get(NODES, "local")["status"].get("conditions") or ()
    return next((each for each in found if each["type"] == labels.OBJECT_ERRORS), {})


def test_a_failure_to_note_log_times_stops_no_pod(stage: Stage) -> None:
    chatty = stage.run("sh", "-c", "while sleep 0.1; do echo x; done")
    stage.phase(chatty, "Running")
    times = stage.folder(chatty) / "containers" / "c0" / "0" / "times"
    until(times.exists)
    times.unlink()
    times.mkdir()  # stands for any disk error, such as a full disk
    until(lambda: (times.parent / "output").stat().st_size, lambda size: size > 60)
    after = stage.run("true")
    stage.phase(after, "Succeeded")
    times.rmdir()
    until(times.is_file)
    stage.delete(chatty, grace=0)
    stage.wait_gone(chatty)


def test_a_pod_starts_once_its_restart_record_can_be_read(stage: Stage) -> None:
    held = stage.run(*SLEEP, schedulingGates=[{"name": "example.org/wait"}])
    record = stage.folder(held) / "restart"
    record.mkdir(parents=True)
    stage.cluster.patch(PODS, held, {"spec": {"schedulingGates": None}}, "default")
    until(lambda: stage.get(held)["spec"].get("nodeName"))
    after = stage.run("true")
    stage.phase(after, "Succeeded")
    record.rmdir()
    stage.phase(held, "Running")
    stage.delete(held, grace=0)
    stage.wait_gone(held)


def test_the_node_condition_names_skipped_pods_until_they_run(stage: Stage) -> None:
    held = stage.run(*SLEEP, schedulingGates=[{"name": "example.org/wait"}])
    record = stage.folder(held) / "restart"
    record.mkdir(parents=True)
    stage.cluster.patch(PODS, held, {"spec": {"schedulingGates": None}}, "default")
    told = until(lambda: errors_of(stage), lambda found: found.get("status") == "True")
    assert f"Pod default/{held} (IsADirectoryError" in told["message"]
    record.rmdir()
    until(lambda: errors_of(stage), lambda found: found.get("status") == "False")
    stage.phase(held, "Running")
    stage.delete(held, grace=0)
    stage.wait_gone(held)


def test_a_container_reports_a_full_disk_and_starts_when_there_is_space(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: str, name: str) -> None:
        raise OSError(28, "No space left on device", folder)

    with monkeypatch.context() as patched:
        patched.setattr(shim, "reserve", full)
        name = stage.run("true")
        status = stage.wait(name, lambda status: "CreateContainerError" in str(status.get("containerStatuses")))
        waiting = status["containerStatuses"][0]["state"]["waiting"]
        assert "No space left on device" in waiting["message"]
    stage.phase(name, "Succeeded")
