"""Commands that change jobs and queues: their patches, their dry runs, and the events that they write."""

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator.cli import api_client
from coordinator.cli.commands import job_control
from coordinator.control import audit_events
from coordinator.control.job_changes import overtakes
from coordinator.query.queries import StoreQueries
from coordinator.runs import submitter
from crds import events, labels
from crds.api_resources import EVENTS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from queues.order import BOOST_LIMIT_SECONDS, score
from queues.rules import PickRules
from queues.values import Entry
from tests.doubles.memory_store import MemoryStore
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import clear, manifest, remove
from tests.support.queues.builders import key, spec
from tests.support.waiting import until

ADMISSION = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}


@pytest.fixture
def job(embedded_cluster: KubernetesCluster, namespace: str) -> str:
    """Create a job that waits in queue a and return its name."""
    embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)
    return "train"


@pytest.fixture(autouse=True)
def _no_events(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    """Delete the events that earlier tests left."""
    for where in (namespace, "default"):
        for each in embedded_cluster.list(EVENTS, where).items:
            remove(embedded_cluster, EVENTS, each["metadata"]["name"], where)


def stored(cluster: KubernetesCluster, namespace: str, name: str = "train") -> dict[str, Any]:
    return cluster.get(TORCHJOBS, name, namespace)


def say(cluster: KubernetesCluster, namespace: str, **status: Any) -> None:
    """Set the status of the job, as coordinator and worker do."""
    cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")


def told(cluster: KubernetesCluster, where: str) -> list[tuple[str, str, str]]:
    found = cluster.list(EVENTS, where).items
    return sorted((each["reason"], each["involvedObject"]["name"], each["message"]) for each in found)


# Events.


def test_a_change_of_a_queue_writes_an_event_with_user_and_reason(
    torchq: Torchq, embedded_cluster: KubernetesCluster
) -> None:
    torchq("queue", "create", "a", "--reason", "a new team")
    torchq("queue", "pause", "a", "--drain", "--reason", "maintenance at noon")
    assert told(embedded_cluster, "default") == [
        ("QueueCreated", "a", "queue a created, by torchq-local: a new team"),
        ("QueuePaused", "a", "queue a on hold and draining, by torchq-local: maintenance at noon"),
    ]
    item = embedded_cluster.get(TENANT_QUEUES, "a")
    about = embedded_cluster.list(EVENTS, "default").items[0]["involvedObject"]
    assert (about["kind"], about["uid"]) == ("TenantQueue", item["metadata"]["uid"])


def test_a_change_of_a_job_writes_an_event_in_its_namespace(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    torchq("job", "hold", job)
    torchq("job", "cancel", job, "--reason", "wrong data")
    assert told(embedded_cluster, namespace) == [
        ("JobCancelled", "train", f"job {namespace}/train cancelled, by torchq-local: wrong data"),
        ("JobHeld", "train", f"job {namespace}/train held, by torchq-local"),
    ]


def test_a_change_is_kept_if_its_event_cannot_be_written(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = KubernetesCluster.create

    def refuse(self: Any, resource: Any, *arguments: Any, **options: Any) -> Any:
        if resource == EVENTS:
            raise errors.Forbidden("not allowed to create events")
        return create(self, resource, *arguments, **options)

    monkeypatch.setattr(KubernetesCluster, "create", refuse)
    said = torchq("job", "hold", job)
    assert said.stdout == f"job {namespace}/train held on torchq-local\n"
    assert "its event could not be written: not allowed to create events" in said.stderr
    assert stored(embedded_cluster, namespace)["spec"]["schedulingPolicy"]["hold"] is True


def test_an_event_names_the_kubeconfig_user_if_the_server_gives_no_name(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = KubernetesCluster.create

    def refuse(self: Any, resource: Any, *arguments: Any, **options: Any) -> Any:
        if resource == submitter.SELF_SUBJECT_REVIEWS:
            raise errors.NotFound("no such resource")
        return create(self, resource, *arguments, **options)

    monkeypatch.setattr(KubernetesCluster, "create", refuse)
    torchq("job", "hold", job)
    assert told(embedded_cluster, namespace)[0][2].endswith(", by torchq-local")


def test_a_long_event_message_is_cut_between_words() -> None:
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}
    body = audit_events.build_event(item, "Code", "said", "word " * 1000, "me", datetime.now(UTC))
    assert events.LONGEST - len(" word") <= len(body["message"]) <= events.LONGEST
    assert body["message"].endswith(" word ...")


# Drains.

AT = "2026-01-01T00:00:00Z"
DRAINING = {"type": "Admitted", "status": "True", "reason": "Draining", "message": "", "lastTransitionTime": AT}


@pytest.mark.parametrize(
    ("status", "until_when"),
    [
        ({}, "00:01:30Z at most (60 s to save and 30 s of grace)"),
        ({"saving": {"request": "Draining/1", "since": "2025-12-31T23:59:00Z"}}, "00:00:30Z at most"),
        ({"conditions": [DRAINING | {"lastTransitionTime": "2025-12-31T12:00:00Z"}]}, "00:00:30Z at most"),
    ],
)
def test_a_drain_tells_for_which_jobs_it_waits_and_until_when(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    status: dict[str, Any],
    until_when: str,
) -> None:
    torchq("queue", "create", "a")
    for name in ("train", "waits"):
        body = manifest(name, "a")
        body["spec"]["schedulingPolicy"]["checkpointSeconds"] = 60
        embedded_cluster.create(TORCHJOBS, body, namespace)
    say(embedded_cluster, namespace, phase="Running", admission=ADMISSION | {"admittedAt": AT}, **status)
    monkeypatch.setattr("coordinator.cli.output.now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    first, second = torchq("queue", "pause", "a", "--drain").stdout.splitlines()
    assert first == "queue a on hold and draining on torchq-local"
    assert second.startswith(f"it waits for job {namespace}/train, until 2026-01-01T{until_when}")
    assert torchq("queue", "pause", "a").stdout.splitlines() == ["queue a on hold on torchq-local"]


# Dry runs.

DRY = [
    ("queue", "create", "new", "--quota", "cpu=4"),
    ("queue", "set-weight", "a", "9"),
    ("queue", "set-quota", "a", "cpu=9"),
    ("queue", "set-cohort", "a", "x"),
    ("queue", "set-gang-queues", "a", "small"),
    ("queue", "pause", "a", "--drain"),
    ("queue", "resume", "a"),
    ("queue", "delete", "b"),
    ("queue", "delete", "a", "--move-to", "b"),
    ("job", "hold", "train"),
    ("job", "suspend", "train"),
    ("job", "resume", "train"),
    ("job", "cancel", "train"),
    ("job", "move", "train", "b"),
]


@pytest.mark.parametrize("arguments", DRY, ids=[" ".join(each[:2]) for each in DRY])
def test_a_dry_run_changes_nothing_and_writes_no_event(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, arguments: tuple[str, ...]
) -> None:
    for name in ("a", "b"):
        torchq("queue", "create", name, "--quota", "cpu=4")
    before = _everything(embedded_cluster, namespace)
    said = torchq(*arguments, "--dry-run").stdout
    assert all(line.endswith("(dry run)") for line in said.splitlines())
    assert said
    assert _everything(embedded_cluster, namespace) == before


def _everything(cluster: KubernetesCluster, namespace: str) -> list[tuple[str, str]]:
    items = [*cluster.list(TENANT_QUEUES).items, *cluster.list(TORCHJOBS).items, *cluster.list(EVENTS).items]
    return sorted((each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in items)


def test_a_dry_run_is_validated_by_the_server(torchq: Torchq) -> None:
    assert "spec.quota" in torchq("queue", "create", "a", "--quota", "limits.cpu=1", "--dry-run", code=1).stderr
    assert "nobody" in torchq("queue", "set-weight", "nobody", "2", "--dry-run", code=1).stderr


# Queues.


def test_set_quota_sets_and_unsets_single_limits(torchq: Torchq, embedded_cluster: KubernetesCluster) -> None:
    torchq("queue", "create", "a", "--quota", "cpu=4,jobs=20")
    assert torchq("queue", "set-quota", "a", "cpu=8", "memory=1Gi", "--unset", "jobs").stdout == (
        "queue a: quota cpu=8 memory=1Gi -jobs on torchq-local\n"
    )
    assert embedded_cluster.get(TENANT_QUEUES, "a")["spec"]["quota"] == {"cpu": "8", "memory": "1Gi"}
    assert "name a limit" in torchq("queue", "set-quota", "a", code=2).stderr
    assert "NAME=QUANTITY" in torchq("queue", "set-quota", "a", "cpu", code=2).stderr


def test_set_quota_names_a_stored_limit_that_is_no_longer_valid(
    torchq: Torchq, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = KubernetesCluster.get

    def of_an_earlier_version(self: KubernetesCluster, *arguments: Any, **options: Any) -> Any:
        found = get(self, *arguments, **options)
        return found | {"spec": {**found["spec"], "quota": {"cpu": "4", "gpu": "2"}}}

    torchq("queue", "create", "a", "--quota", "cpu=4")
    monkeypatch.setattr(KubernetesCluster, "get", of_an_earlier_version)
    said = torchq("queue", "set-quota", "a", "limits.cpu=1", code=1).stderr
    assert "gpu is not a resource; did you mean nvidia.com/gpu? (as stored: torchq queue set-quota a" in said


def test_set_cohort_sets_and_removes_the_cohort(torchq: Torchq, embedded_cluster: KubernetesCluster) -> None:
    torchq("queue", "create", "a", "--quota", "cpu=4", "--strict", "--namespace", "team-a", "--namespace", "team-b")
    torchq("queue", "set-cohort", "a", "x", "--borrowing-limit", "cpu=2")
    spec = embedded_cluster.get(TENANT_QUEUES, "a")["spec"]
    assert (spec["cohort"], spec["borrowingLimit"], spec["ordering"]) == ("x", {"cpu": "2"}, "StrictFIFO")
    assert spec["namespaces"] == ["team-a", "team-b"]
    torchq("queue", "set-cohort", "a", "--none")
    spec = embedded_cluster.get(TENANT_QUEUES, "a")["spec"]
    assert "cohort" not in spec
    assert "borrowingLimit" not in spec
    assert "name a cohort, or --none" in torchq("queue", "set-cohort", "a", code=2).stderr


def test_gang_queues_are_listed_changed_and_shown(torchq: Torchq, embedded_cluster: KubernetesCluster) -> None:
    torchq("queue", "create", "a", "--gang-queue", "ours", "--gang-queue", "spare")
    assert "Gang queues:   ours (default), spare\n" in torchq("queue", "show", "a").stdout
    torchq("queue", "set-gang-queues", "a", "ours", "burst", "--default", "burst")
    spec = embedded_cluster.get(TENANT_QUEUES, "a")["spec"]
    assert (spec["gangQueues"], spec["gangQueue"]) == (["ours", "burst"], "burst")
    assert "Gang queues:   ours, burst (default)\n" in torchq("queue", "show", "a").stdout
    assert (
        "must be one of spec.gangQueues"
        in torchq("queue", "set-gang-queues", "a", "x", "--default", "y", code=1).stderr
    )
    torchq("queue", "set-gang-queues", "a", "--any", "--default", "burst")
    assert "Gang queues:   any (burst by default)\n" in torchq("queue", "show", "a").stdout
    torchq("queue", "set-gang-queues", "a", "--any")
    assert not {"gangQueues", "gangQueue"} & embedded_cluster.get(TENANT_QUEUES, "a")["spec"].keys()
    assert "Gang queues" not in torchq("queue", "show", "a").stdout
    assert "--any" in torchq("queue", "set-gang-queues", "a", code=2).stderr


def test_queue_delete_with_move_to_moves_the_jobs_first(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    torchq("queue", "create", "a")
    assert "queue a has 1 unfinished jobs" in torchq("queue", "delete", "a", code=1).stderr
    assert "nowhere" in torchq("queue", "delete", "a", "--move-to", "nowhere", code=1).stderr
    assert "another queue" in torchq("queue", "delete", "a", "--move-to", "a", code=2).stderr
    torchq("queue", "create", "b")
    said = torchq("queue", "delete", "a", "--move-to", "b").stdout
    assert said == f"job {namespace}/train moved from queue a to b on torchq-local\nqueue a deleted on torchq-local\n"
    assert stored(embedded_cluster, namespace)["spec"]["schedulingPolicy"]["queue"] == "b"


def test_queue_delete_rejects_a_queue_whose_jobs_hold_room(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    for name in ("a", "b"):
        torchq("queue", "create", name)
    say(embedded_cluster, namespace, phase="Running", admission=ADMISSION)
    refused = torchq("queue", "delete", "a", "--move-to", "b", code=1).stderr
    assert "1 jobs that hold room" in refused
    assert "--requeue" in refused
    assert embedded_cluster.get(TENANT_QUEUES, "a")["spec"].get("stopPolicy", "None") == "None"


def test_queue_delete_without_permission_to_move_jobs_leaves_the_queue_unchanged(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        torchq("queue", "create", name)
    patch = KubernetesCluster.patch

    def refuse(self: Any, resource: Any, *arguments: Any, **options: Any) -> Any:
        if resource == TORCHJOBS:
            raise errors.Forbidden("not allowed to patch torchjobs")
        return patch(self, resource, *arguments, **options)

    monkeypatch.setattr(KubernetesCluster, "patch", refuse)
    assert "not allowed" in torchq("queue", "delete", "a", "--move-to", "b", code=1).stderr
    assert embedded_cluster.get(TENANT_QUEUES, "a")["spec"].get("stopPolicy", "None") == "None"


# Jobs.


def test_hold_and_resume_can_be_repeated(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    torchq("job", "hold", job)
    torchq("job", "hold", job)
    torchq("job", "resume", job)
    found = stored(embedded_cluster, namespace)
    assert (found["spec"]["schedulingPolicy"]["hold"], found["spec"]["suspend"]) == (False, False)
    assert labels.RETRY_AT in found["metadata"]["annotations"], "the history counts its wait from here on"
    torchq("job", "resume", job)
    assert stored(embedded_cluster, namespace)["metadata"]["annotations"] == found["metadata"]["annotations"]


def test_hold_rejects_a_running_job_and_resume_ignores_it(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    say(embedded_cluster, namespace, phase="Running", admission=ADMISSION)
    assert "torchq job suspend" in torchq("job", "hold", job, code=1).stderr
    torchq("job", "resume", job)


@pytest.mark.parametrize("queue", [{"parked": True}, {"notBefore": "2026-01-01T00:00:00Z"}])
def test_resume_requests_a_retry_of_a_parked_or_backed_off_job(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, queue: dict[str, Any]
) -> None:
    since = datetime.now(UTC) - timedelta(seconds=1)
    say(embedded_cluster, namespace, phase="Queued", queue={"name": "a", "reason": "Parked", **queue})
    torchq("job", "resume", job)
    asked = stored(embedded_cluster, namespace)["metadata"]["annotations"][labels.RETRY_AT]
    assert datetime.fromisoformat(asked) > since


def figures(first: Entry | None, aging: float = 600.0) -> StoreQueries:
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [first] if first else [])
    store.configure([spec("a")], None)
    return StoreQueries(store, lambda: pytest.fail("no numbers are needed"), PickRules())


@pytest.mark.parametrize(
    ("ahead", "priority", "enough"),
    [
        (0.0, 1, True),  # priority 1 suffices: ties are ordered by name
        (599.0, 1, True),
        (600.0, 2, True),
        (3600.0, 7, True),
        (BOOST_LIMIT_SECONDS - 1, 1008, True),
        (BOOST_LIMIT_SECONDS + 600, 1008, False),
    ],
)
def test_bump_raises_the_priority_as_far_as_needed(
    torchq: Torchq,
    job: str,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    ahead: float,
    priority: int,
    enough: bool,
) -> None:
    created = stored(embedded_cluster, namespace)["metadata"]["creationTimestamp"]
    submitted = datetime.fromisoformat(created).timestamp()
    first = Entry(key=key("first"), queue="a", submitted=submitted - ahead, demand={"jobs": 1})
    reading = figures(first)
    monkeypatch.setattr(api_client, "find", lambda _: reading)
    said = torchq("job", "bump", job)
    assert said.stdout == f"job {namespace}/train bumped in queue a to priority {priority} on torchq-local\n"
    assert ("team/first stays before it" in said.stderr) is not enough
    found = stored(embedded_cluster, namespace)
    assert found["spec"]["schedulingPolicy"]["priority"] == priority
    mine = Entry(key=key("train"), queue="a", submitted=submitted, priority=priority, demand={"jobs": 1})
    assert (score(mine, 600.0) < score(first, 600.0)) is enough
    assert overtakes(found, reading.queue("a"), priority) is enough


def test_bump_ignores_the_first_job_and_rejects_a_running_one(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "find", lambda _: figures(None))
    assert "is already the first of queue a" in torchq("job", "bump", job).stdout
    say(embedded_cluster, namespace, phase="Queued", queue={"parked": True})
    assert torchq("job", "bump", job).stdout == f"job {namespace}/train bumped in queue a on torchq-local\n"
    assert labels.RETRY_AT in stored(embedded_cluster, namespace)["metadata"]["annotations"]
    say(embedded_cluster, namespace, phase="Running", admission=ADMISSION)
    assert "does not wait" in torchq("job", "bump", job, code=1).stderr


def test_move_changes_the_queue_of_a_waiting_job_once(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    assert torchq("job", "move", job, "b").stdout == f"job {namespace}/train moved from queue a to b on torchq-local\n"
    assert "is in queue b already" in torchq("job", "move", job, "--to", "b").stdout
    assert "one queue" in torchq("job", "move", job, code=2).stderr
    assert "one queue" in torchq("job", "move", "-l", "a=b", code=2).stderr
    assert len(told(embedded_cluster, namespace)) == 1


def test_move_rejects_a_job_that_holds_room_without_requeue(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    say(embedded_cluster, namespace, phase="Running", admission=ADMISSION)
    assert "--requeue" in torchq("job", "move", job, "b", code=1).stderr
    assert "suspended" in torchq("job", "move", job, "b", "--requeue", "--dry-run").stdout
    assert not stored(embedded_cluster, namespace)["spec"].get("suspend")
    with playing_the_worker(embedded_cluster, namespace):
        said = torchq("job", "move", job, "b", "--requeue").stdout
    assert said.splitlines() == [
        f"job {namespace}/train suspended, to be moved to queue b on torchq-local",
        f"job {namespace}/train moved from queue a to b on torchq-local",
    ]
    found = stored(embedded_cluster, namespace)
    assert (found["spec"]["suspend"], found["spec"]["schedulingPolicy"]["queue"]) == (False, "b")


def test_an_interrupted_move_continues_when_it_is_repeated(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_control, "_LOOK_SECONDS", 0.05)
    say(embedded_cluster, namespace, phase="Running", admission=ADMISSION)
    told = torchq("job", "move", job, "b", "--requeue", "--timeout", "1", code=1).stderr
    assert "run the same command again to continue" in told
    say(embedded_cluster, namespace, phase="Suspended", admission=None)
    torchq("job", "move", job, "b", "--requeue")
    found = stored(embedded_cluster, namespace)
    assert (found["spec"]["suspend"], found["spec"]["schedulingPolicy"]["queue"]) == (False, "b")


def test_move_keeps_a_suspended_job_suspended(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    torchq("job", "suspend", job)
    torchq("job", "move", job, "b")
    assert stored(embedded_cluster, namespace)["spec"]["suspend"] is True
    say(embedded_cluster, namespace, phase="Succeeded")
    assert "has finished" in torchq("job", "move", job, "c", code=1).stderr


class playing_the_worker:  # noqa: N801 - a context manager, read like a function
    """Suspend the job, as a worker does, once its spec requests a suspension."""

    def __init__(self, cluster: KubernetesCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.thread = threading.Thread(target=self.play)

    def play(self) -> None:
        until(lambda: stored(self.cluster, self.namespace)["spec"].get("suspend"))
        say(self.cluster, self.namespace, phase="Suspended", admission=None)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join()


def test_job_list_prints_sorted_wide_and_json_output(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    embedded_cluster.create(TORCHJOBS, manifest("alpha", "b", schedulingPolicy={"priority": 5}), namespace)
    names = [line.split()[1] for line in torchq("job", "list", "--no-headers", "--sort-by", "name").stdout.splitlines()]
    assert names == ["alpha", "train"]
    wide = torchq("job", "list", "-o", "wide", "--sort-by", "-priority").stdout.splitlines()
    assert wide[0].split()[-5:] == ["PRIORITY", "ATTEMPT", "RESTARTS", "USER", "REASON"]
    assert wide[1].split()[1] == "alpha"
    items = json.loads(torchq("job", "list", "-o", "json", "--sort-by", "name").stdout)["items"]
    assert [each["metadata"]["name"] for each in items] == ["alpha", "train"]
    clear(embedded_cluster)
    assert torchq("job", "list", "--no-headers").stdout == ""


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("gpu=8", "gpu is not a resource; did you mean nvidia.com/gpu?"),
        ("mem=8Gi", "mem is not a resource; did you mean memory?"),
        ("frobs=8", "frobs is not a resource: write cpu, memory,"),
        ("nvidia.com/gpu=1.5", "nvidia.com/gpu=1.5: must be a whole number"),
        ("nvidia.com/gpu=1500m", "must be a whole number"),
        ("jobs=1.5", "must be a whole number"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("queue", "create", "b", "--quota"),
        ("queue", "create", "b", "--quota", "cpu=1", "--cohort", "c", "--borrowing-limit"),
        ("queue", "set-quota", "a"),
        ("queue", "set-cohort", "a", "c", "--borrowing-limit"),
    ],
)
def test_a_limit_without_effect_is_rejected_with_a_suggestion(
    embedded_cluster: KubernetesCluster, torchq: Torchq, command: tuple[str, ...], limit: str, words: str
) -> None:
    said = torchq(*command, limit, code=2).stderr
    assert words in " ".join(said.split())
    assert embedded_cluster.list(TENANT_QUEUES).items == []


@pytest.mark.parametrize("field", ["quota", "borrowingLimit"])
@pytest.mark.parametrize(("limits", "words"), [({"gpu": 8}, "nvidia.com/gpu"), ({"nvidia.com/gpu": "1.5"}, "whole")])
def test_the_api_server_rejects_a_limit_without_effect(
    embedded_cluster: KubernetesCluster, field: str, limits: dict[str, Any], words: str
) -> None:
    spec = {"quota": {"cpu": 1}, "cohort": "c", field: limits}
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": "a"}, "spec": spec}
    with pytest.raises(errors.Invalid, match=words) as refusal:
        embedded_cluster.create(TENANT_QUEUES, body)
    assert {cause.field for cause in refusal.value.causes} == {f"spec.{field}"}


def test_an_error_about_a_job_that_is_gone_leads_to_its_history(torchq: Torchq) -> None:
    assert '"gone" not found; if it is gone: torchq history gone' in torchq("job", "show", "gone", code=1).output
