"""Objects that users of a namespace create to harm other tenants; the charges of these tenants never change."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cache import views
from coordinator.cache.routing_rules import RoutingRules
from coordinator.leader import error_isolation
from coordinator.routing import pod_charges, rebuilt_state
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from crds.tenantqueue import TenantQueueSpec
from queues import errors
from queues.storage.redis_store import RedisStore
from queues.store import QueueStore, StoreSettings
from queues.values import Entry, Reservation
from tests.coordinator.leader.test_control_loop import make_pod, seen
from tests.doubles.memory_store import MemoryStore
from tests.support.coordinator import desk as desks
from tests.support.coordinator.builders import admission, job, node
from tests.support.coordinator.desk import Desk

GOOD, EVIL = JobKey("good", "train", "u-good"), JobKey("evil", "mine", "u-evil")
RULES = RoutingRules(
    queues={"victim": TenantQueueSpec(namespaces=("good",)), "own": TenantQueueSpec(namespaces=("evil",))},
    implicit=False,
)
VICTIM = job(key=GOOD, queue="victim", attempt=1, admission=admission(queue="victim"))
MINE = job(key=EVIL, queue="own", suspended=True, attempt=1, version="100")
NODES = [node(allocatable={"cpu": 8000, "memory": 1 << 30, "pods": 110})]
NUMBERS = ["1", "0", "2", "9" * 60, "9" * 5000, "-1", "٣", "1e9", "", "9007199254740993"]


def hostile(**given: Any) -> dict[str, Any]:
    """Return a pod that a user wrote by hand, as an API server stores it."""
    marks = {labels.JOB_UID: EVIL.uid, labels.JOB_NAME: EVIL.name, labels.QUEUE: "own", labels.ATTEMPT: "1"}
    container = {"name": "c", "resources": {"requests": given.pop("requests", {"cpu": "1"})}}
    own = [desks.owner(EVIL)]
    metadata = {
        "namespace": "evil",
        "name": given.pop("name", "p"),
        "resourceVersion": given.pop("version", "50"),
        "labels": {**marks, **given.pop("labels", {})},
        "annotations": given.pop("annotations", {}),
        "ownerReferences": given.pop("owners", own),
        "finalizers": ["example.org/keep"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = {"containers": [container], "nodeName": given.pop("node", "one")}
    assert not given
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def charged(*pods: dict[str, Any], jobs: Any = (MINE,), rules: RoutingRules = RULES) -> dict[str, Amounts]:
    """Return the charge of each queue, except that of the victim's own job."""
    found = rebuilt_state.compute([VICTIM, *jobs], map(views.pod_view, pods), {}, rules, 1000.0, nodes=NODES)
    assert found.errors == {}
    return {each.queue: each.charge for each in found.reservations if each.key != GOOD}


ONE_CPU = {"cpu": 1000, "pods": 1, "jobs": 1}
TABLE = {
    "a pod without false claims": (hostile(), {"own": ONE_CPU}),
    "a charge that the pod does not ask for": (hostile(annotations={labels.CHARGE: '{"cpu":64000}'}), {"own": ONE_CPU}),
    "a charge of nothing": (hostile(annotations={labels.CHARGE: "{}"}), {"own": ONE_CPU}),
    "a charge below nothing": (hostile(annotations={labels.CHARGE: '{"cpu":-64000}'}), {"own": ONE_CPU}),
    "the queue of another tenant": (hostile(labels={labels.QUEUE: "victim"}), {}),
    "a queue that does not exist": (hostile(labels={labels.QUEUE: "nowhere"}), {}),
    "no queue at all": (hostile(labels={labels.QUEUE: ""}), {"own": ONE_CPU}),
    "an attempt that does not exist": (hostile(labels={labels.ATTEMPT: "2"}), {}),
    "no attempt": (hostile(labels={labels.ATTEMPT: "0"}), {}),
    "an attempt of sixty digits": (hostile(labels={labels.ATTEMPT: "9" * 60}), {}),
    "an attempt with more digits than Python reads": (hostile(labels={labels.ATTEMPT: "9" * 5000}), {}),
    "requests for more than its node has": (
        hostile(requests={"cpu": "1000000"}),
        {"own": {"cpu": 8000, "pods": 1, "jobs": 1}},
    ),
    "a node that does not exist": (hostile(node="nowhere"), {"own": {"jobs": 1}}),
    "no node": (hostile(node=""), {}),
    "a resource of no node": (hostile(requests={"example.org/x": "5"}), {"own": {"pods": 1, "jobs": 1}}),
    "an owner of another kind": (hostile(owners=[{**desks.owner(EVIL), "kind": "ConfigMap", "apiVersion": "v1"}]), {}),
    "an owner of another name": (hostile(owners=[{**desks.owner(EVIL), "name": "other"}]), {}),
    "an owner that does not control it": (hostile(owners=[{**desks.owner(EVIL), "controller": False}]), {}),
    "no owner": (hostile(owners=[]), {}),
    "an owner and labels of the victim's job": (
        hostile(labels={labels.JOB_UID: GOOD.uid, labels.JOB_NAME: GOOD.name}, owners=[desks.owner(GOOD)]),
        {"own": ONE_CPU},
    ),
}


@pytest.mark.parametrize(("manifest", "expected"), TABLE.values(), ids=TABLE.keys())
def test_a_hostile_pod_charges_no_queue_but_its_own(manifest: dict[str, Any], expected: dict[str, Amounts]) -> None:
    assert charged(manifest) == expected


def test_pods_of_a_deleted_job_are_charged_whatever_their_attempt() -> None:
    assert charged(hostile(labels={labels.ATTEMPT: "7"}), jobs=()) == {"own": ONE_CPU}
    assert charged(hostile(labels={labels.QUEUE: "victim"}), jobs=()) == {}


def test_a_running_pod_without_a_known_node_is_charged() -> None:
    running = hostile(node="")
    running["status"]["phase"] = "Running"
    found = rebuilt_state.compute([], [views.pod_view(running)], {}, RULES, 1000.0)
    assert [each.charge for each in found.reservations] == [ONE_CPU]


def test_labels_of_pods_do_not_change_the_reservation_of_a_job() -> None:
    held = Reservation(key=EVIL, queue="own", attempt=1, epoch=3, charge={"cpu": 2000, "jobs": 1})
    view = views.pod_view(hostile(labels={labels.QUEUE: "victim", labels.ATTEMPT: "9" * 60}))
    assert rebuilt_state.compute([MINE], [view], {EVIL: held}, RULES, 1000.0).reservations == (held,)


def test_pods_of_a_node_are_charged_no_more_than_the_node_has() -> None:
    pods = [hostile(name=f"p{number}", requests={"cpu": "3"}) for number in range(1000)]
    assert charged(*pods) == {"own": {"cpu": 8000, "pods": 110, "jobs": 1}}
    elsewhere = [
        hostile(labels={labels.JOB_UID: f"u{each}", labels.JOB_NAME: "x"}, owners=[], requests={"cpu": "3"})
        for each in range(9)
    ]
    for number, each in enumerate(elsewhere):
        each["metadata"]["ownerReferences"] = [desks.owner(JobKey("evil", "x", f"u{number}"))]
    found = rebuilt_state.compute([], map(views.pod_view, elsewhere), {}, RULES, 1000.0, nodes=NODES)
    assert sum(each.charge.get("cpu", 0) for each in found.reservations) == 8000


def test_a_charge_with_too_many_names_keeps_those_with_a_limit() -> None:
    rules = replace(RULES, ceilings={"own": {"cpu": 9000, "memory": 1 << 30}})
    many = {f"example.org/a{number}": "1" for number in range(500)}
    view = views.pod_view(hostile(requests={**many, "memory": "5", "cpu": "9E", "zebra.example.org/x": "1"}))
    (found,) = rebuilt_state.compute([], [view], {}, rules, 1000.0).reservations
    assert len(found.charge) == 65
    assert (found.charge["memory"], found.charge["cpu"], found.charge["jobs"]) == (5, 2**53 - 1, 1)


def test_a_pod_that_charges_no_queue_takes_room_of_the_pool() -> None:
    def foreign(*pods: dict[str, Any]) -> list[Amounts]:
        jobs = {GOOD: VICTIM, EVIL: MINE}
        seen_by_pool = pod_charges.pods_for_pool(map(views.pod_view, pods), jobs, RULES)
        return [each.demand for each in seen_by_pool if each.job is None]

    assert foreign(hostile()) == []
    assert foreign(hostile(labels={labels.QUEUE: "victim"})) == [{"cpu": 1000, "pods": 1}]
    assert foreign(hostile(labels={labels.QUEUE: "victim"}, node="")) == [{}]
    assert foreign(hostile(labels={labels.ATTEMPT: "2"})) == [{"cpu": 1000, "pods": 1}]
    assert (
        foreign(hostile(labels={labels.ATTEMPT: "2"}, version="101")) == []
    )  # the job may have reached that attempt by now


def test_jobs_are_read_again_only_for_newer_pods() -> None:
    jobs = {GOOD: VICTIM, EVIL: MINE}

    def newer(**given: Any) -> list[JobKey]:
        return rebuilt_state.jobs_to_reread(jobs, [views.pod_view(hostile(**given))], {})

    assert newer(labels={labels.ATTEMPT: "2"}, version="101") == [EVIL]
    assert newer(labels={labels.ATTEMPT: "2"}, version="100") == []
    assert newer(labels={labels.ATTEMPT: "1"}, version="101") == []
    assert newer(labels={labels.ATTEMPT: "9" * 60}, version="101") == []


def test_a_pod_of_an_unread_job_charges_the_queue_of_the_job() -> None:
    made = hostile(labels={labels.QUEUE: "victim", labels.ATTEMPT: "2"}, version="101", node="")
    del made["metadata"]["deletionTimestamp"]
    view = views.pod_view(made)
    (found,) = rebuilt_state.compute([MINE], [view], {}, RULES, 1000.0, nodes=NODES, unread=[EVIL]).reservations
    assert (found.queue, found.charge) == ("own", ONE_CPU)


@pytest.mark.parametrize("node", ["", "one"])
def test_a_pod_of_an_unread_job_charges_no_queue_that_is_closed_to_it(node: str) -> None:
    named = replace(MINE, queue="victim")
    made = hostile(labels={labels.QUEUE: "victim", labels.ATTEMPT: "2"}, version="101", node=node)
    del made["metadata"]["deletionTimestamp"]
    found = rebuilt_state.compute(
        [VICTIM, named], [views.pod_view(made)], {}, RULES, 1000.0, nodes=NODES, unread=[EVIL]
    )
    assert [each.key for each in found.reservations] == [GOOD]


@pytest.mark.parametrize("node", ["", "one"])
@pytest.mark.parametrize(("queue", "expected"), [("victim", []), ("own", [ONE_CPU])])
def test_a_pod_of_an_unknown_job_charges_only_a_queue_of_its_namespace(
    queue: str, expected: list[Amounts], node: str
) -> None:
    made = hostile(labels={labels.QUEUE: queue}, node=node)
    del made["metadata"]["deletionTimestamp"]
    found = rebuilt_state.compute([], [views.pod_view(made)], {}, RULES, 1000.0, nodes=NODES, unread=[EVIL])
    assert [each.charge for each in found.reservations] == expected


MANIFESTS = st.builds(
    hostile,
    name=st.sampled_from(["p", "q", "x" * 253]),
    labels=st.dictionaries(
        st.sampled_from([labels.QUEUE, labels.ATTEMPT, labels.JOB_UID, labels.JOB_NAME, labels.RESTART]),
        st.sampled_from([*NUMBERS, "victim", "own", EVIL.uid, GOOD.uid, GOOD.name, "a.B_c"]),
    ),
    annotations=st.dictionaries(
        st.sampled_from([labels.CHARGE, labels.GANG_SIZE, labels.RESTARTS_HANDLED]),
        st.sampled_from([*NUMBERS, '{"cpu":9e99}', '{"cpu":' + "9" * 60 + "}", "[]", "null", "{", '{"": 1}']),
    ),
    owners=st.just([desks.owner(EVIL)])
    | st.lists(
        st.fixed_dictionaries(
            {"uid": st.sampled_from([EVIL.uid, GOOD.uid, "", "1"])},
            optional={
                "controller": st.booleans(),
                "kind": st.sampled_from(["TorchJob", "Pod", ""]),
                "apiVersion": st.sampled_from([TORCHJOBS.api_version, "v1", "/", ""]),
                "name": st.sampled_from([EVIL.name, GOOD.name, ""]),
            },
        ),
        max_size=3,
    ),
    requests=st.dictionaries(
        st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "example.org/" + "x" * 240, "jobs", "*"]),
        st.sampled_from(["1", "9E", "1e18", "999999999999999999", "0", "1n"]),
    ),
    version=st.sampled_from(NUMBERS),
    node=st.sampled_from(["", "one", "nowhere"]),
)


@settings(max_examples=300)
@given(st.lists(MANIFESTS, max_size=5), st.sampled_from(["", "own", "victim", "nowhere"]), st.booleans())
def test_pods_never_change_the_charge_of_another_queue(pods: list[dict[str, Any]], named: str, read: bool) -> None:
    jobs = [VICTIM, replace(MINE, queue=named)] if named else [VICTIM]
    baseline = rebuilt_state.compute([VICTIM], [], {}, RULES, 1000.0).reservations
    found = rebuilt_state.compute(
        jobs, map(views.pod_view, pods), {}, RULES, 1000.0, nodes=NODES, unread=[] if read else [EVIL]
    )
    assert found.errors == {}
    assert tuple(each for each in found.reservations if each.queue == "victim") == baseline
    mine = [each for each in found.reservations if each.queue != "victim"]
    assert all(each.key.namespace == "evil" for each in mine)
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, found.reservations, found.entries)
    assert store.reservations().keys() == {each.key for each in found.reservations}


@pytest.fixture(params=["memory", "fakeredis"])
def store(request: pytest.FixtureRequest) -> Iterator[QueueStore]:
    ports = StoreSettings(ports=(20_000, 20_099))
    if request.param == "memory":
        yield MemoryStore(lambda *_: None, ports)
        return
    yield RedisStore(fakeredis.FakeRedis(server=fakeredis.FakeServer()), ports)


TOO_LARGE = [
    Entry(key=EVIL, queue="own", submitted=1.0, priority=2**53, attempt=1, demand={}),
    Entry(key=EVIL, queue="own", submitted=1.0, attempt=int("9" * 60), demand={}),
    Entry(key=EVIL, queue="own", submitted=float("inf"), attempt=1, demand={}),
    Entry(key=EVIL, queue="own", submitted=1.0, attempt=1, demand={"cpu": 2**64}),
    Entry(key=JobKey("evil", "a/b", "u"), queue="own", submitted=1.0, attempt=1, demand={}),
]
SOUND = Entry(key=GOOD, queue="victim", submitted=1.0, attempt=1, demand={"cpu": 1})


@pytest.mark.parametrize("entry", TOO_LARGE)
def test_put_stores_no_entry_if_one_of_them_is_unstorable(store: QueueStore, entry: Entry) -> None:
    store.rebuild(1, [], [])
    with pytest.raises(errors.Unstorable, match=r"evil/"):
        store.put([SOUND, entry])
    assert store.place(GOOD) is None
    store.put([SOUND])
    assert store.place(GOOD) is not None
    held = Reservation(key=EVIL, queue="own", attempt=1, epoch=1, charge={"cpu": 2**53})
    with pytest.raises(errors.Unstorable, match=r"evil/"):
        store.rebuild(2, [held], [])


@given(st.lists(st.integers(0, 30), max_size=40), st.sets(st.integers(0, 30)))
def test_items_that_fail_are_skipped_and_all_others_are_processed(items: list[int], bad: set[int]) -> None:
    done: list[int] = []
    skipped: list[int] = []

    def act(part: Any) -> None:
        if bad & set(part):
            raise ValueError("one of these")
        done.extend(part)

    error_isolation.act_on_all(items, act, lambda item, _: skipped.append(item))
    assert done == [each for each in items if each not in bad]
    assert skipped == [each for each in items if each in bad]


def test_an_error_of_the_store_is_raised_and_skips_no_item() -> None:
    def act(_: Any) -> None:
        raise errors.StoreUnreachable("Redis does not answer")

    with pytest.raises(errors.StoreUnreachable):
        error_isolation.act_on_all([1, 2, 3], act, lambda *_: pytest.fail("skipped"))


# The same objects in a term: rebuild, audit and flush.


def spoil(desk: Desk, key: JobKey) -> None:
    """Create pods by hand that claim everything for the victim's queue."""
    for number, text in enumerate(["9" * 60, "1", "2", "0"]):
        marks = {labels.JOB_UID: key.uid, labels.JOB_NAME: key.name, labels.QUEUE: "victim", labels.ATTEMPT: text}
        notes = {labels.CHARGE: '{"cpu":999999999,"memory":1}', labels.RESTARTS_HANDLED: "9" * 5000}
        name = f"hostile-{number}"
        make_pod(desk, key, name, node="one", labels=marks, annotations=notes, finalizers=["example.org/keep"])


def test_a_term_works_with_hostile_pods(desk: Desk, namespace: str) -> None:
    desk.queue("victim", namespaces=["somewhere-else"])
    desk.queue("own")
    desk.begin()
    mine = desk.submit("mine", namespace, "own", suspend=True)
    seen(desk, mine)
    gone = JobKey(namespace, "gone", "8d1f4d7e-2f53-4b73-9a41-6f3f4b2a0c11")
    spoil(desk, mine)
    desk.begin(epoch=2)
    assert desk.term.audit()
    make_pod(
        desk,
        gone,
        "gone",
        node="one",
        labels={labels.JOB_UID: gone.uid, labels.JOB_NAME: "gone", labels.QUEUE: "victim", labels.ATTEMPT: "9" * 60},
    )
    other = desk.submit("other", namespace, "own")
    desk.until(lambda: other in desk.reserved(), worker=False)
    desk.lose()
    desk.begin(epoch=3)
    assert desk.term.audit()
    assert "victim" not in desk.content.usage
    assert desk.watches.errors.objects == 0
    for name in desk.pods_of(JobKey(namespace, "", "")):
        desk.cluster.patch(PODS, name, {"metadata": {"finalizers": None}}, namespace)


def test_a_rebuild_reads_a_job_again_if_a_pod_has_a_newer_attempt(desk: Desk, namespace: str) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    seen(desk, key)
    desk.watches.jobs.stop()  # from now on the watch lags behind
    status = {
        "queue": "a",
        "attempt": 1,
        "epoch": 1,
        "pick": 1,
        "charge": {"cpu": 2000, "jobs": 1, "pods": 2},
        "port": 20_007,
    }
    patch = {"status": {"phase": "Admitted", "attempt": 1, "admission": status}}
    desk.cluster.patch(TORCHJOBS, key.name, patch, namespace, subresource="status")
    make_pod(
        desk,
        key,
        labels={labels.JOB_UID: key.uid, labels.JOB_NAME: key.name, labels.QUEUE: "elsewhere", labels.ATTEMPT: "1"},
    )
    desk.begin(epoch=2)
    held = desk.content.reservations[key]
    assert (held.queue, held.attempt, held.charge, held.port) == ("a", 1, {"cpu": 2000, "jobs": 1, "pods": 2}, 20_007)


class Spoilt(MemoryStore):
    """A store in which one entry causes an unforeseen error."""

    bad = "bad"

    def put(self, entries: Any) -> None:
        found = list(entries)
        if any(each.key.name == self.bad for each in found):
            raise TypeError("Integer exceeds 64-bit range")
        super().put(found)


def test_an_unstorable_entry_does_not_keep_other_entries_out(
    desk: Desk, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk.queue("a", stopPolicy="Hold")
    ports = StoreSettings(ports=(20_000, 20_099))
    desk.store = Spoilt(desk.work.mark, ports, desk.content, desk.work.may_have_pods)
    desk.begin()
    bad = desk.submit("bad", namespace, "a")
    good = [desk.submit(f"good-{number}", namespace, "a") for number in range(5)]
    desk.until(lambda: desk.waiting() == set(good), worker=False)
    for _ in range(3):
        desk.term.resync()
        desk.until(lambda: not desk.term.flush(), worker=False)
    assert desk.waiting() == set(good)
    lines = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert lines == [
        f"TorchJob {namespace}/bad is skipped after an unforeseen error: TypeError: Integer exceeds 64-bit range"
    ]
    assert f"TorchJob {namespace}/bad" in desk.watches.errors.summary
    desk.store.bad = ""
    desk.term.resync()
    desk.until(lambda: desk.waiting() == {bad, *good}, worker=False)
    assert desk.watches.errors.summary == ""
