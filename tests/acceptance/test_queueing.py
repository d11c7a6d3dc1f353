"""The order of admissions and the quotas of queues, on a cluster of real processes."""

import json
from pathlib import Path

import pytest

from examples.demo import order
from tests.support.acceptance.jobs import in_order, job, python, recording, spans
from tests.support.acceptance.stack import EVERYWHERE, Stack, fresh, until


@EVERYWHERE
def test_jobs_are_admitted_by_smooth_weighted_round_robin(stack: Stack) -> None:
    weights = {f"{letter}{fresh('')}": weight for letter, weight in (("a", 5), ("b", 2), ("c", 1))}
    # The jobs suffice for two whole rounds before the first queue is empty.
    counts = dict(zip(weights, (10, 4, 3), strict=True))
    for queue, weight in weights.items():
        stack.torchq("queue", "create", queue, "--weight", str(weight), "--hold")
    names = [f"{queue}-{number}" for queue, count in counts.items() for number in range(count)]
    stack.submit(*(job(name, python("pass"), queue=name.partition("-")[0]) for name in names))
    until(stack.waiting, lambda found: len(found) == len(names))
    stack.torchq("queue", "resume", *weights)
    jobs = [stack.reach(name, "Succeeded") for name in names]
    admissions = sorted((each["status"]["admission"] for each in jobs), key=lambda each: (each["epoch"], each["pick"]))
    contested = order.contested([each["queue"] for each in admissions], counts)
    assert contested == order.smooth(weights, len(contested))
    assert len(contested) >= 14


@pytest.mark.parametrize("quota", ["jobs=1", "cpu=1500m"])
def test_a_queue_never_exceeds_its_quota(stack: Stack, records: Path, quota: str) -> None:
    queue, names = fresh("queue"), [fresh() for _ in range(5)]
    stack.torchq("queue", "create", queue, "--quota", quota)
    stack.submit(*(job(name, recording(records, 0.1), queue=queue, cpu="1") for name in names))
    for name in names:
        stack.reach(name, "Succeeded")
    found = spans(records)
    assert [span.job for span in sorted(found, key=lambda span: span.starts[0])] == names  # the oldest first
    assert in_order(found)


@EVERYWHERE
def test_the_quota_of_one_queue_does_not_block_another(stack: Stack, records: Path, tmp_path: Path) -> None:
    queue, first, second, other = fresh("queue"), fresh(), fresh(), fresh()
    stack.torchq("queue", "create", queue, "--quota", "jobs=1")
    stack.submit(*(job(name, recording(records, gate=tmp_path / "gate"), queue=queue) for name in (first, second)))
    stack.reach(first, "Running")
    stack.submit(job(other, python("pass")))
    stack.reach(other, "Succeeded")
    stack.reach(second, "Queued")
    (tmp_path / "gate").touch()
    stack.reach(second, "Succeeded")


@EVERYWHERE
def test_a_queue_can_be_created_listed_changed_and_deleted(stack: Stack) -> None:
    queue, name = fresh("queue"), fresh()
    stack.torchq("queue", "create", queue, "--weight", "3", "--quota", "cpu=2,jobs=20", "--hold")
    stack.submit(job(name, python("pass"), queue=queue))
    stack.torchq("queue", "set-weight", queue, "4")
    # A queue without an object is listed, too, while figures of jobs of an earlier test show the queue as busy.
    [item] = until(
        lambda: stack.output_json("queue", "list")["items"],
        lambda items: len(items) == 1 and (items[0].get("status") or {}).get("pending") == 1,
    )
    assert item["spec"]["weight"] == 4
    assert item["spec"]["quota"] == {"cpu": "2", "jobs": "20"}
    assert item["spec"]["stopPolicy"] == "Hold"
    header, line = stack.torchq("queue", "list").splitlines()
    moving = {"AGE": "", "LAG": "", "OLDEST": ""}
    assert dict(zip(header.split(), line.split(), strict=True)) | moving == moving | {
        "NAME": queue,
        "WEIGHT": "4",
        "STATE": "Hold",
        "PENDING": "1",
        "ADMITTED": "0",
        "SHARE": item["status"].get("share", "-"),
        "TARGET": item["status"].get("target", "-"),
        "USAGE": "cpu=0/2,jobs=0/20",
    }
    refused = stack.try_run("queue", "delete", queue)
    assert refused.code == 1
    assert f"default/{name}" in refused.err
    stack.torchq("queue", "resume", queue)
    stack.reach(name, "Succeeded")
    stack.torchq("queue", "delete", queue)
    # The figures of the coordinator may be a second old: they list a queue that had work a second ago.
    until(lambda: stack.output_json("queue", "list")["items"], lambda items: items == [])
    again = stack.try_run("queue", "delete", queue)
    assert (again.code, queue in again.err) == (1, True)


@EVERYWHERE
def test_a_paused_queue_admits_no_job_and_its_running_job_continues(
    stack: Stack, records: Path, tmp_path: Path
) -> None:
    queue, running, waiting, elsewhere = fresh("queue"), fresh(), fresh(), fresh()
    stack.torchq("queue", "create", queue)
    stack.submit(job(running, recording(records, gate=tmp_path / "gate"), queue=queue))
    stack.reach(running, "Running")
    stack.torchq("queue", "pause", queue)
    until(lambda: not stack.is_open(queue))
    stack.submit(job(waiting, python("pass"), queue=queue))
    stack.reach(waiting, "Queued")
    (tmp_path / "gate").touch()
    stack.reach(running, "Succeeded")
    # Without the pause, the waiting job would be admitted before this job.
    stack.submit(job(elsewhere, python("pass")))
    stack.reach(elsewhere, "Succeeded")
    assert stack.phase(waiting) == "Queued"
    stack.torchq("queue", "resume", queue)
    stack.reach(waiting, "Succeeded")


@EVERYWHERE
def test_a_job_larger_than_the_pool_waits_and_does_not_block_others(stack: Stack) -> None:
    large, small, crowded, roomy = fresh(), fresh(), fresh("large"), fresh("small")
    for queue in (crowded, roomy):
        stack.torchq("queue", "create", queue)
    stack.submit(job(large, python("pass"), cpu="64", queue=crowded), anyway=True)
    stack.reach(large, "Queued")
    stack.submit(job(small, python("pass"), queue=roomy))
    stack.reach(small, "Succeeded")
    assert stack.phase(large) == "Queued"
    assert (
        json.loads(stack.torchq("job", "list", "-o", "json", "--queue", crowded))["items"][0]["metadata"]["name"]
        == large
    )
