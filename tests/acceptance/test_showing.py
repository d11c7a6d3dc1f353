"""Commands that show queues, and commands that move, bump and hold jobs, on a cluster of real processes."""

import json
from pathlib import Path
from typing import Any

from crds.api_resources import EVENTS
from embedded.redis import server_program
from tests.support.acceptance.jobs import job, python, recording, spans
from tests.support.acceptance.stack import EVERYWHERE, Stack, fresh, until


def shown(stack: Stack, *arguments: str) -> Any:
    return json.loads(stack.torchq(*arguments, "-o", "json"))


def figures(stack: Stack, queue: str) -> dict[str, Any]:
    found = [each for each in shown(stack, "queue", "list")["items"] if each["metadata"]["name"] == queue]
    return dict(found[0].get("status") or {}) if found else {}


@EVERYWHERE
def test_job_why_explains_a_full_pool_and_next_shows_the_order(stack: Stack, records: Path, tmp_path: Path) -> None:
    queue, large, first, second = fresh("queue"), fresh(), fresh(), fresh()
    stack.torchq("queue", "create", queue, "--weight", "3")
    stack.submit(job(large, recording(records, gate=tmp_path / "gate"), queue=queue, cpu="3"))
    stack.reach(large, "Running")
    stack.submit(job(first, python("pass"), queue=queue, cpu="2"))
    until(lambda: figures(stack, queue).get("pending") == 1)
    stack.submit(job(second, python("pass"), queue=queue, cpu="2"))
    found = until(lambda: shown(stack, "job", "why", second), lambda found: found.get("of") == 2)
    assert (found["position"], found["code"], found["nextPick"]) == (2, "BehindOthers", None)
    why = stack.torchq("job", "why", first)
    assert "WaitingForPool" in why
    assert "needs 2 cpu" in why
    order = [(f"default/{first}", "when room is free"), (f"default/{second}", "when room is free")]
    until(lambda: [(each["job"], each["when"]) for each in shown(stack, "next")["items"]], lambda found: found == order)
    wanted = {"pending": 2, "admitted": 1, "usage": {"cpu": "3", "jobs": "1", "pods": "1"}}
    until(lambda: figures(stack, queue), lambda status: {name: status.get(name) for name in wanted} == wanted)
    (tmp_path / "gate").touch()
    for name in (large, first, second):
        stack.reach(name, "Succeeded")
    assert "does not wait: Succeeded" in stack.torchq("job", "why", first)


@EVERYWHERE
def test_status_and_top_report_a_healthy_cluster(stack: Stack) -> None:
    name = fresh()
    stack.submit(job(name, python("pass")))
    stack.reach(name, "Succeeded")
    found = until(lambda: shown(stack, "status", "--seconds", "0.5"), lambda found: found["jobs"]["admitted"] == 0)
    assert found["trouble"] == {}
    assert found["picks"] > 0
    assert found["reconciles"] > 0
    assert found["waits"]["admissions"] > 0
    assert sum(found["workers"].values()) > 0
    cluster, leader = stack.torchq("top", "--count", "1").splitlines()[:2]
    assert cluster.startswith("Cluster:")
    assert leader.startswith("Leader:")


@EVERYWHERE
def test_a_running_job_moved_with_requeue_runs_again_in_the_new_queue(
    stack: Stack, records: Path, tmp_path: Path
) -> None:
    name, there = fresh(), fresh("queue")
    stack.torchq("queue", "create", there)
    stack.submit(job(name, recording(records, gate=tmp_path / "gate")))
    stack.reach(name, "Running")
    refused = stack.try_run("job", "move", name, there)
    assert (refused.code, "--requeue" in refused.err) == (1, True)
    submitted = stack.job(name)["metadata"]["creationTimestamp"]
    stack.torchq("job", "move", name, there, "--requeue", "--reason", "a quieter place")
    (tmp_path / "gate").touch()
    ended = stack.reach(name, "Succeeded")
    assert ended["status"]["admission"]["queue"] == there
    assert ended["status"]["admission"]["attempt"] == 2
    assert ended["metadata"]["creationTimestamp"] == submitted
    assert max(span.attempt for span in spans(records)) == 2
    messages = [each["message"] for each in stack.api.list(EVENTS, "default").items if each["reason"] == "JobMoved"]
    assert any(name in each and each.endswith(": a quieter place") for each in messages)


def test_a_bumped_job_is_admitted_first(stack: Stack) -> None:
    queue, names = fresh("queue"), [fresh() for _ in range(4)]
    stack.torchq("queue", "create", queue, "--hold")
    stack.submit(*(job(name, python("pass"), queue=queue) for name in names))
    until(lambda: figures(stack, queue).get("pending") == 4)
    # The snapshot of the coordinator may be a second old and not show the job yet.
    until(lambda: stack.try_run("job", "bump", names[-1]), lambda said: said.code == 0)
    until(lambda: shown(stack, "job", "position", names[-1])["position"] == 1)
    stack.torchq("queue", "resume", queue)
    picks = [stack.reach(name, "Succeeded")["status"]["admission"]["pick"] for name in names]
    assert min(picks) == picks[-1]


def test_a_held_job_waits_and_does_not_block_others(stack: Stack) -> None:
    queue, held, other = fresh("queue"), fresh(), fresh()
    stack.torchq("queue", "create", queue, "--hold")
    stack.submit(job(held, python("pass"), queue=queue), job(other, python("pass"), queue=queue))
    stack.torchq("job", "hold", held)
    # Jobs and queues have separate watches, so the hold must be visible before the queue resumes.
    until(lambda: "Held" in stack.torchq("job", "why", held))
    stack.torchq("queue", "resume", queue)
    stack.reach(other, "Succeeded")
    assert "Held" in stack.torchq("job", "why", held)
    stack.torchq("job", "resume", held)
    stack.reach(held, "Succeeded")


def test_queue_delete_moves_the_jobs_to_another_queue(stack: Stack) -> None:
    old, new, name = fresh("queue"), fresh("queue"), fresh()
    for each in (old, new):
        stack.torchq("queue", "create", each, "--hold")
    stack.submit(job(name, python("pass"), queue=old))
    until(lambda: figures(stack, old).get("pending") == 1)
    stack.torchq("queue", "delete", old, "--move-to", new)
    stack.torchq("queue", "resume", new)
    assert stack.reach(name, "Succeeded")["status"]["admission"]["queue"] == new


def test_job_why_with_a_redis_url_reads_the_queues_directly(stack: Stack) -> None:
    queue, name = fresh("queue"), fresh()
    stack.torchq("queue", "create", queue, "--hold")
    stack.submit(job(name, python("pass"), queue=queue))
    until(lambda: figures(stack, queue).get("pending") == 1)
    redis = f"unix://{server_program.socket_path(stack.layout)}"
    until(lambda: shown(stack, "--redis", redis, "job", "why", name)["code"] == "QueueHeld")
    assert "can be picked" in stack.try_run("--redis", redis, "next").err
    stack.torchq("job", "cancel", name)
