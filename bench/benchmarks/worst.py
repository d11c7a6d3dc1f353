"""Measures how much CPU time the most expensive objects cost the thread of an informer.

One rule: an object of each shape is as large as an API server accepts, and it is measured as if it were new: no result
of an earlier read is reused.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from bench.report import Figures
from coordinator.cache import views
from crds import labels
from kube import streams
from reconcilers.views import pod_view

Body = dict[str, Any]
Make = Callable[[int], Body]
LARGEST = 1_400_000
"""The size of an object in bytes of JSON. etcd accepts 1.5 MiB including its own additions."""
MOST_ANNOTATIONS = 30_000
"""The largest number of annotations. An API server accepts 256 KiB of them."""
UID = "0c5e8f0a-7a4e-4b0e-9d0a-3f3a54c1d001"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    bytes: int = LARGEST
    rounds: int = 5
    """The number of times that each shape is read; the shortest time counts."""


SHORT = Options(bytes=100_000, rounds=1)


def run(options: Options) -> Figures:
    """Return the CPU milliseconds per event, by kind and shape, and the largest of them."""
    times = {
        f"{kind}_{name}_ms": 1e3 * _seconds(body, options.rounds, view)
        for kind, shapes, view in (
            ("job", JOBS, views.job_view),
            ("pod", PODS, views.pod_view),
            ("worker_pod", PODS, pod_view.trim),
        )
        for name, make in shapes.items()
        if (body := fitting(make, options.bytes))
    }
    return {**times, "worst_ms": max(times.values())}


def _seconds(body: Body, rounds: int, view: Callable[[Body], object]) -> float:
    line = text({"type": "MODIFIED", "object": body})
    return min(_once(line, number, view) for number in range(rounds))


def _once(line: bytes, number: int, view: Callable[[Body], object]) -> float:
    fresh = line.replace(UID.encode(), f"{number:08d}{UID[8:]}".encode())
    began = time.thread_time()
    for event in streams.events([fresh, b"\n"], "watch"):
        view(event.object)
    return time.thread_time() - began


def fitting(make: Make, size: int) -> Body:
    """Return the largest object of a shape that has at most `size` bytes."""
    few, more = (len(text(make(count))) for count in (160, 320))
    count = max(1, 160 + (size - few) * 160 // max(1, more - few))
    while count > 1 and len(text(make(count))) > size:
        count = count * 97 // 100
    return make(count)


def _metadata(**more: Any) -> Body:
    return {
        "name": "train",
        "namespace": "team",
        "uid": UID,
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **more,
    }


def _many(count: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(number) for number in range(count)]


def _asks(number: int, **more: Any) -> Body:
    return {"name": f"c{number}", "resources": {"requests": {f"example.org/r{number}": 1}}, **more}


def _names(count: int) -> Mapping[str, int]:
    return {f"example.org/r{number}": 1 for number in range(count)}


def _spec(**more: Any) -> Body:
    """Return the spec of a pod with one usual container."""
    return {"containers": [{"name": "torch", "image": "torch:1"}], **more}


def _with(**more: Any) -> Body:
    """Return the spec of a pod whose container has more fields."""
    return {"containers": [{"name": "torch", "image": "torch:1", **more}]}


def _requests(requests: Mapping[str, Any], **more: Any) -> Body:
    return _with(resources={"requests": requests, **more})


def _unknown(value: Any) -> Body:
    return _spec(unknown=value)


def text(body: Body) -> bytes:
    """Return a body as JSON.

    A string `@9000/90@` is replaced by a hundred lists with 90 levels each, because no JSON writer nests as deeply as
    an API server reads.
    """
    return _NESTED.sub(_nest, orjson.dumps(body))


def _nest(match: re.Match[bytes]) -> bytes:
    levels = int(match[2])
    return b",".join([b"[" * levels + b"]" * levels] * (int(match[1]) // levels))


_NESTED = re.compile(rb'"@([0-9]+)/([0-9]+)@"')
SPECS: Mapping[str, Make] = {
    "containers_each_with_a_resource": lambda n: {"containers": _many(n, _asks)},
    "init_containers_each_with_a_resource": lambda n: _spec(initContainers=_many(n, _asks)),
    "sidecars_each_with_a_resource": lambda n: _spec(initContainers=_many(n, partial(_asks, restartPolicy="Always"))),
    "sidecars_between_init_containers": lambda n: _spec(
        initContainers=_many(n, lambda i: _asks(i, **({"restartPolicy": "Always"} if i % 2 else {})))
    ),
    "small_containers": lambda n: {"containers": _many(n, lambda i: {"name": f"c{i}"})},
    "resources_of_a_container": lambda n: _requests(_names(n)),
    "limits_and_requests": lambda n: _requests(_names(n // 2), limits=_names(n)),
    "resources_of_the_pod": lambda n: _spec(resources={"requests": _names(n)}),
    "overhead": lambda n: _spec(overhead=_names(n)),
    "quantities": lambda n: _requests({f"a.b/{i}": f"0.{i:060d}" for i in range(n)}),
    "wrong_quantities": lambda n: _requests({f"a.b/{i}": "1e9999" for i in range(n)}),
    "wrong_resource_names": lambda n: _requests({f"?{i}": "1" for i in range(n)}),
    "a_long_quantity": lambda n: _requests({"cpu": "1" * n}),
    "a_long_resource_name": lambda n: _requests({"a" * n: 1}),
    "env": lambda n: _with(env=_many(n, lambda i: {"name": f"V{i}", "value": "x"})),
    "env_without_names": lambda n: _with(env=[{}] * n),
    "ports": lambda n: _with(ports=_many(n, lambda i: {"containerPort": 1 + i % 65_535})),
    "ports_of_the_host": lambda n: {
        "hostNetwork": True,
        **_with(ports=_many(n, lambda i: {"containerPort": 1 + i % 65_535, "hostPort": 1})),
    },
    "wrong_ports": lambda n: _with(ports=[{"containerPort": 0}] * n),
    "arguments": lambda n: _with(args=["x"] * n),
    "tolerations": lambda n: _spec(tolerations=_many(n, lambda i: {"key": f"k{i}"})),
    "resource_claims": lambda n: _spec(resourceClaims=_many(n, lambda i: {"name": f"c{i}"})),
    "empty_objects": lambda n: _unknown([{}] * n),
    "empty_lists": lambda n: _unknown([[]] * n),
    "short_strings": lambda n: _unknown(_many(n, str)),
    "short_keys": lambda n: _unknown({str(i): 0 for i in range(n)}),
    "numbers": lambda n: _unknown([0.1] * n),
    "a_long_string": lambda n: _with(args=["é" * n]),
    "escapes": lambda n: _with(args=["\n" * n]),
    "nested": lambda n: _unknown([f"@{90 * n}/90@"]),
    "nested_deep": lambda n: _unknown([f"@{400 * n}/400@"]),
    "nested_beyond_reading": lambda n: _unknown([f"@{9_000 * n}/9000@"]),
    "nested_beyond_reading_with_strings": lambda n: _with(args=["x"] * 300 * n) | {"unknown": [f"@{1_100 * n}/1100@"]},
}
"""The shapes of pod specs, by name."""


def _job(spec: Body, metadata: Body | None = None) -> Body:
    head = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob"}
    return {**head, "metadata": metadata or _metadata(), "spec": spec, "status": {}}


def _tasks(spec: Body, **more: Any) -> Body:
    """Return the spec of a job with one task, whose pods have the given spec."""
    return {"torchTaskSpecs": {"Master": {"template": {"spec": spec}, **more}}}


def _over_tasks(make: Make, tasks: int = 16) -> Make:
    """Return a shape that is divided among the largest number of tasks that a job may have."""
    return lambda n: _job(
        {
            "torchTaskSpecs": {
                f"T{at}": {"template": {"spec": make(max(1, n // tasks))}, "numTasks": 9_999} for at in range(tasks)
            }
        }
    )


_MARKS: Mapping[str, Make] = {
    "labels": lambda n: _metadata(labels={f"a/{i}": "" for i in range(n)}),
    "annotations": lambda n: _metadata(
        annotations={f"a/{i}": "" for i in range(min(n, MOST_ANNOTATIONS))}, labels={"a": "x" * n}
    ),
    "finalizers": lambda n: _metadata(finalizers=_many(n, lambda i: f"a/{i}")),
    "owners": lambda n: _metadata(
        ownerReferences=_many(n, lambda i: {"apiVersion": "v1", "kind": "A", "name": "a", "uid": str(i)})
    ),
    "managed_fields": lambda n: _metadata(
        managedFields=[{"manager": "m", "fieldsV1": {f"f:{i}": {} for i in range(n)}}]
    ),
}
"""The shapes of metadata, by name."""


def _of_each(wrap: Callable[[Body], Body], makes: Mapping[str, Make]) -> dict[str, Make]:
    return {name: lambda n, make=make: wrap(make(n)) for name, make in makes.items()}  # type: ignore[misc]


JOBS: Mapping[str, Make] = {
    **_of_each(lambda spec: _job(_tasks(spec)), SPECS),
    **{f"tasks_of_{name}": _over_tasks(make) for name, make in SPECS.items()},
    **_of_each(partial(_job, _tasks(_spec())), _MARKS),
    "a_status_in_the_spec": lambda n: _job(_tasks({"unknown": {"a": {}, "status": {"x": [f"@{90 * n}/90@"]}}})),
    "task_types": lambda n: _job({"torchTaskSpecs": {f"T{i}": {"template": {"spec": _spec()}} for i in range(n)}}),
    "wrong_task_types": lambda n: _job({"torchTaskSpecs": {f"?{i}": {} for i in range(n)}}),
    "unknown_fields": lambda n: _job({**_tasks(_spec()), **{f"u{i}": 0 for i in range(n)}}),
    "minimums": lambda n: _job({**_tasks(_spec()), "minMembers": {f"T{i}": 1 for i in range(n)}}),
    "dependencies": lambda n: _job(_tasks(_spec(), dependsOn=[{"taskType": "Worker"}] * n)),
    "spot_labels": lambda n: _job(_tasks(_spec(), spotTaskSpec={"labels": {str(i): "" for i in range(n)}})),
    "template_labels": lambda n: _job(
        _tasks({}, template={"metadata": {"labels": {str(i): "" for i in range(n)}}, "spec": _spec()})
    ),
}
_OWNER = {"kind": "TorchJob", "name": "train", "uid": UID, "controller": True}


def _pod(spec: Body, metadata: Body | None = None) -> Body:
    owned = {
        "labels": {labels.JOB_UID: UID, labels.JOB_NAME: "train"},
        "ownerReferences": [{"apiVersion": "train.distributed.io/v1alpha1", **_OWNER}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata or _metadata(**owned),
        "spec": {"nodeName": "one", **spec},
        "status": {"phase": "Pending"},
    }


def _is_of_a_pod(name: str, make: Make) -> bool:
    """Return whether an API server stores such a pod. The server drops unknown fields and refuses invalid ones."""
    return "unknown" not in make(1) and not name.startswith(("wrong_", "a_long_")) and "without" not in name


PODS: Mapping[str, Make] = {
    **_of_each(_pod, {name: make for name, make in SPECS.items() if _is_of_a_pod(name, make)}),
    **_of_each(partial(_pod, _spec()), _MARKS),
    "charge": lambda n: _pod(
        _spec(),
        _metadata(
            labels={labels.JOB_UID: UID},
            ownerReferences=[_OWNER],
            annotations={labels.CHARGE: orjson.dumps({f"r{i}": 1 for i in range(n)}).decode()},
        ),
    ),
}
