"""Hostile objects are refused with the path of a field, or are harmless to all components that read them."""

import copy
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.cache import rule_views, views
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobPods
from coordinator.routing import pool_capacity, queue_specs, rebuilt_state, route
from crds import problems, tenantqueue
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.torchjob import demand, torchjob
from embedded.apiserver.schema import pruning
from queues.values import QueueSpec, Reservation
from reconcilers.observe import _invalid
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, InvalidJob, Observation, WriteStatus
from reconcilers.views import pod_view
from tests.doubles.memory_content import Content
from tests.doubles.memory_store import MemoryStore
from tests.support.crds import served
from tests.support.fuzz import strategies
from tests.support.queues.builders import choose, commit
from tests.support.reconcilers.simulation import merged

ONLY_IN_PYTHON = (
    "dependency cycle",
    ".template",
    "all pods together",
    "spec.torchTaskSpecs: Invalid value: quantity",
    "main container",
    "the pod itself asks for memory",
)
"""Messages of problems that no rule of the definition detects: cycles, and errors that depend on the opaque pod
template.
"""
KINDS = ("TorchJob", "TenantQueue")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SETTINGS = (ReconcileSettings(), ReconcileSettings(master_address="loopback"))
PARSE = {"TorchJob": torchjob.parse, "TenantQueue": tenantqueue.parse}
SUBMIT = {**PARSE, "TorchJob": torchjob.parse_submitted}
thorough = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def found(manifest: Any, kind: str, parse: Mapping[str, Callable[[Any], object]] = PARSE) -> list[str]:
    """Return the problems that parsing reports; an exception other than InvalidObject fails the test."""
    try:
        parse[kind](manifest)
    except InvalidObject as error:
        return [f"{each.field or '<root>'}: {each.message}" for each in error.problems]
    return []


def settled(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the object with its defaults and without nulls, which the server treats as absent."""
    new = copy.deepcopy(manifest)
    pruning.settle(new, served.KINDS[new["kind"]].schema)
    return new


def unknown(manifest: dict[str, Any]) -> list[str]:
    """Return the unknown fields of the object."""
    return pruning.settle(copy.deepcopy(manifest), served.KINDS[manifest["kind"]].schema)


def stored(manifest: dict[str, Any], status: Any = None) -> dict[str, Any]:
    """Return the object as an API server returns it."""
    own = {
        "namespace": "team",
        "uid": "0c5e8f0a-7a4e-4b0e-9d0a-3f3a54c1d001",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "7",
        "generation": 1,
    }
    body = {**copy.deepcopy(manifest), "metadata": {**manifest["metadata"], **own}}
    return body if status is None else {**body, "status": status}


@pytest.mark.parametrize("kind", KINDS)
def test_parse_and_the_server_refuse_the_same_objects(kind: str) -> None:
    @thorough
    @given(strategies.conforming_objects(kind) | strategies.invalid_objects(kind))
    def agree(manifest: dict[str, Any]) -> None:
        refused = served.refusals(manifest)
        said = found(settled(manifest), kind, SUBMIT)
        visible = [each for each in said if not any(word in each for word in ONLY_IN_PYTHON)]
        assert bool(refused) <= bool(said or unknown(manifest)), refused
        assert bool(visible) <= bool(refused), visible

    agree()


@given(strategies.ANY)
def test_any_value_is_refused_without_a_traceback(value: Any) -> None:
    for kind in KINDS:
        assert found(value, kind)
        assert found(
            {"apiVersion": "train.distributed.io/v1alpha1", "kind": kind, "metadata": value, "spec": value}, kind
        )


@thorough
@given(strategies.running_jobs())
def test_parsed_job_is_parsed_to_the_same_after_printing(manifest: dict[str, Any]) -> None:
    if found(manifest, "TorchJob"):
        return
    job = torchjob.parse(manifest)
    printed = job.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert torchjob.parse(printed) == job


@thorough
@given(strategies.running_jobs() | strategies.conforming_objects("TorchJob"))
def test_components_handle_any_job_that_the_server_accepts(manifest: dict[str, Any]) -> None:
    if not served.refusals(manifest):
        pass_along(stored(settled(manifest)))


STATUSES = st.none() | strategies.ANY | strategies.conforming(strategies.ROOTS["TorchJob"]["properties"]["status"])


@thorough
@given(strategies.invalid_objects("TorchJob"), STATUSES)
def test_components_handle_any_job_that_an_older_schema_accepted(manifest: dict[str, Any], status: Any) -> None:
    pass_along(stored(manifest, status), judge=False)


def pass_along(manifest: dict[str, Any], *, judge: bool = True) -> None:
    """Pass the job through each component that handles jobs: views, routing, rebuild of state, queues and planning."""
    view = views.job_view(orjson.loads(json.dumps(manifest)))
    assert view.invalid == bool(found(manifest, "TorchJob"))
    for pods in (JobPods(), JobPods(occupy=True, queue="team", version=5)):
        routed = route.route(view.key, view, pods, RoutingRules(queued_after=0.5), 1e9)
        assert not (routed.put and view.invalid)
    rebuilt_state.compute([view], [], {}, RoutingRules(), 1e9)
    if view.invalid:
        _plan(manifest, refused(manifest), None, judge)
        return
    reservation = _admitted(view)
    for settings_ in SETTINGS:
        _plan(manifest, torchjob.parse(manifest), reservation, judge, settings_)


def refused(manifest: dict[str, Any]) -> InvalidJob:
    with pytest.raises(InvalidObject) as error:
        torchjob.parse(manifest)
    return _invalid(manifest, error.value)


def _admitted(view: views.JobView) -> Reservation | None:
    """Pass the job through the queues (put, snapshot, choose, commit) and return its reservation, or None without
    one.
    """
    store = MemoryStore(lambda *_: None, content=Content())
    store.rebuild(1, (), ())
    store.configure([QueueSpec(name=view.queue)], None)
    store.put([route.entry(view, RoutingRules())])
    batch = choose(store.snapshot(4), 2e9, 4, "jobs")
    return next(iter(commit(store, batch).reservations), None)


def _plan(
    manifest: dict[str, Any],
    job: Any,
    reservation: Reservation | None,
    judge: bool,
    settings_: ReconcileSettings = SETTINGS[0],
) -> None:
    own = manifest["metadata"]
    key = JobKey(own["namespace"], own["name"], own["uid"])
    planned = plan(Observation(key=key, job=job, pods=(), reservation=reservation), settings_, NOW)
    for action in planned.actions:
        match action:
            case WriteStatus(change) if judge:
                after = merged(manifest, change)
                assert served.refusals(after, manifest) == [], change
            case CreatePods(manifests):
                for made in manifests[:2]:
                    _pod(made)


def _pod(made: dict[str, Any]) -> None:
    pod = orjson.loads(orjson.dumps(made))
    pod["metadata"] |= {"uid": "u", "resourceVersion": "8", "creationTimestamp": "2026-01-01T00:00:00Z"}
    trimmed = pod_view.trim(pod)
    assert trimmed.job_uid
    view = views.pod_view(pod)
    assert view.demand == demand.pod_demand(pod["spec"])
    pool_capacity.capacity("nodes", [], [view])


@settings(max_examples=60, deadline=None)
@given(
    strategies.ANY, st.dictionaries(st.sampled_from(["charge", "gang-size", "gang"]), strategies.TEXTS), st.booleans()
)
def test_charge_claimed_by_a_pod_never_makes_its_demand_negative(spec: Any, claims: dict[str, str], ours: bool) -> None:
    marks = {f"train.distributed.io/{name}": text for name, text in claims.items()}
    labels = {"train.distributed.io/job-uid": "u", "train.distributed.io/attempt": "²"} if ours else {}
    pod = {
        "metadata": {"namespace": "x", "name": "p", "uid": "u", "annotations": marks, "labels": labels},
        "spec": {"nodeName": "one", **spec} if isinstance(spec, dict) else {"nodeName": "one"},
    }
    assert all(amount >= 0 for amount in views.pod_view(pod).demand.values())


@pytest.mark.parametrize("charge", ['{"cpu": -5}', '{"cpu": 1e30}', "[]", "{", '{"cpu": "1"}', '{"cpu": true}', "null"])
def test_pod_with_an_invalid_charge_is_counted_by_its_requests(charge: str) -> None:
    spec = {"nodeName": "one", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    own = {"namespace": "x", "name": "p", "uid": "u", "annotations": {"train.distributed.io/charge": charge}}
    for labels in ({}, {"train.distributed.io/job-uid": "u"}):
        assert views.pod_view({"metadata": {**own, "labels": labels}, "spec": spec}).demand == {"cpu": 2000, "pods": 1}


def test_charge_of_a_foreign_pod_is_ignored() -> None:
    own = {"namespace": "x", "name": "p", "uid": "u", "annotations": {"train.distributed.io/charge": '{"cpu": 0}'}}
    spec = {"nodeName": "one", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    assert views.pod_view({"metadata": own, "spec": spec}).demand == {"cpu": 2000, "pods": 1}


@thorough
@given(strategies.conforming_objects("TenantQueue") | strategies.invalid_objects("TenantQueue"))
def test_unreadable_queue_is_closed_and_a_readable_one_follows_its_stop_policy(manifest: dict[str, Any]) -> None:
    view = rule_views.queue_view(stored(manifest))
    spec = queue_specs.spec(view)
    assert all(0 <= amount <= demand.LARGEST for amount in spec.quota.values())
    try:
        tenantqueue.read(stored(manifest))
    except InvalidObject:
        assert not spec.open
    else:
        assert spec.open == (stored(manifest).get("spec", {}).get("stopPolicy", "None") == "None")
        assert bool(found(stored(manifest), "TenantQueue")) == any(tenantqueue.ineffective(view))


def task(**fields: Any) -> dict[str, Any]:
    """Return a task of a small job."""
    container = {"name": "c", "image": "x", **fields.pop("container", {})}
    return {"template": {"spec": {"containers": [container], **fields.pop("pod", {})}}, **fields}


def job(tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a TorchJob of these tasks."""
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {"name": "a"},
        "spec": {"torchTaskSpecs": tasks, **spec},
    }


def nested(levels: int) -> Any:
    """Return maps nested to this depth."""
    inner: Any = 1
    for _ in range(levels):
        inner = {"a": inner}
    return inner


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param(job({"A": task(pod={"x": nested(1000)})}), "nested deeper", id="1,000 levels"),
        pytest.param(job({"A": task(pod={"x": nested(100_000)})}), "nested deeper", id="100,000 levels"),
        pytest.param(
            job({"A": task(), "a": task()}), "differ in more than case", id="task types that differ only in case"
        ),
        pytest.param(job({"A": task(numTasks=2**31 - 1)}), "10000", id="a count of 2^31-1"),
        pytest.param(job({"A": task()}, minMembers={"B": 1}), "minMembers", id="minMembers of an unknown task"),
        pytest.param(
            job({"A": task(container={"resources": {"requests": {f"x/r{i}": 1 for i in range(100)}}})}),
            "at most 64 items",
            id="100 resources",
        ),
        pytest.param(
            job({"A": task(container={"resources": {"requests": {"requests.cpu": 1, "cpu": 8}}})}),
            "not a resource",
            id="one resource under two names",
        ),
        pytest.param(
            job({"A": task(container={"resources": {"requests": {"cpu": "9" * 400}}})}),
            "not a quantity",
            id="400 digits",
        ),
    ],
)
def test_hostile_job_is_refused_with_a_short_message(manifest: dict[str, Any], words: str) -> None:
    said = found(manifest, "TorchJob")
    assert any(words in each for each in said), said
    assert all(len(each) < 1000 for each in said)


def test_manifests_of_the_largest_job_are_built_lazily() -> None:
    manifest = stored(job({"A": task(numTasks=10_000, pod={"x": ["y" * 10_000]})}))
    view = views.job_view(manifest)
    admitted = _admitted(view)
    planned = plan(
        Observation(key=view.key, job=torchjob.parse(manifest), pods=(), reservation=admitted), SETTINGS[1], NOW
    )
    first, others = [each.manifests for each in planned.actions if isinstance(each, CreatePods)]
    assert (len(first), len(others)) == (1, 9_999)
    assert not isinstance(others, list | tuple)
    assert (first[0]["metadata"]["name"], others[9_998]["metadata"]["name"]) == ("a-a-0", "a-a-9999")


def test_enormous_quota_is_accepted_and_capped() -> None:
    queue = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TenantQueue", "metadata": {"name": "q"}}
    for amount in ("1e30", 10**15, "9E", 1e30):
        manifest = {**queue, "spec": {"quota": {"memory": amount}}}
        assert served.refusals(manifest) == []
        assert 0 < tenantqueue.parse(manifest).spec.quota_amounts["memory"] <= demand.LARGEST
    assert problems.quote(None) == "null"
