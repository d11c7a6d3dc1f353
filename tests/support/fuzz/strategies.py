"""Strategies for objects of the CustomResourceDefinitions: valid objects, and objects with a hostile value.

One rule: only fields within the opaque pod template are named here. All other fields come from the definitions, so that
a new field is fuzzed at once.
"""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from crds.schema import definitions

Schema = dict[str, Any]

HUGE = 10**30
WORDS = (
    "",
    "a",
    "Worker",
    "worker",
    "Master",
    "é",
    "名前",
    "a\0b",
    "../../x",
    "x" * 64,
    "1e400",
    "-5",
    "0x10",
    "$(A)",
    "\n",
)
NUMBERS = (0, -1, 1, 2, 63, 64, 10_000, 10_001, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -(2**63), 0.5, 1e30, -0.0)
AMOUNTS = (*WORDS, *NUMBERS, "500m", "1.5", "9E", "1e99", "1e3", "9" * 64, "9" * 400, "1Ki", None, True, [1], {"a": 1})
TEXTS = st.sampled_from(WORDS) | st.text(st.characters(codec="utf-8"), max_size=12)
KEYS = st.sampled_from(
    [
        "Worker",
        "worker",
        "Master",
        "A",
        "a" * 21,
        "a-b",
        "cpu",
        "memory",
        "nvidia.com/gpu",
        "requests.cpu",
        "jobs",
        "name",
    ]
) | st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.none() | st.booleans() | st.sampled_from(NUMBERS) | TEXTS
ANY: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "requests.cpu", "jobs", "", "a b", "é/x", "x/" + "y" * 64]),
    st.sampled_from(AMOUNTS),
    max_size=3,
)
STRANGE_CONTAINERS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"name": st.sampled_from(["torch", "c", "é", "../x"])},
    optional={
        "image": TEXTS,
        "command": ANY,
        "env": ANY | st.just({"A": "b"}) | st.lists(st.fixed_dictionaries({"name": TEXTS}, optional={"value": ANY})),
        "ports": ANY
        | st.lists(
            st.fixed_dictionaries(
                {"containerPort": st.sampled_from(NUMBERS)}, optional={"name": TEXTS, "hostPort": SCALARS}
            ),
            max_size=2,
        ),
        "resources": ANY | st.fixed_dictionaries({}, optional={"requests": RESOURCES | ANY, "limits": RESOURCES | ANY}),
        "restartPolicy": SCALARS,
    },
)
TEMPLATES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(STRANGE_CONTAINERS, min_size=1, max_size=2)},
            optional={
                "initContainers": ANY | st.lists(STRANGE_CONTAINERS, max_size=2),
                "resources": ANY | st.fixed_dictionaries({}, optional={"requests": RESOURCES}),
                "overhead": ANY | RESOURCES,
                "hostNetwork": SCALARS,
                "restartPolicy": SCALARS,
                "volumes": ANY,
                "subdomain": SCALARS,
            },
        )
    },
    optional={"metadata": ANY | st.fixed_dictionaries({}, optional={"labels": ANY, "annotations": ANY})},
)


def _schema(definition: Schema) -> Schema:
    found: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


ROOTS = {"TorchJob": _schema(definitions.torchjob()), "TenantQueue": _schema(definitions.tenant_queue())}


def conforming(schema: Schema) -> st.SearchStrategy[Any]:
    """Return values that a schema allows, including its bounds. CEL rules may still refuse them."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string") and "pattern" not in schema:  # nprocPerNode
        return st.integers(1, 1024) | st.sampled_from(["gpu", 1, 1024, 0, 1025, "1"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 2**63 - 1) | st.sampled_from(["1", "500m", "1.5", "2Gi", "1e3", "+1"])
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return TEMPLATES
    match schema.get("type"):
        case "object":
            return _mapping(schema)
        case "array":
            return st.lists(conforming(schema["items"]), min_size=schema.get("minItems", 0), max_size=3)
        case "integer":
            low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1)
            return st.sampled_from([low, min(low + 1, high), high]) | st.integers(low, high)
        case "boolean":
            return st.booleans()
        case "string":
            return _text(schema)
    return ANY


def _text(schema: Schema) -> st.SearchStrategy[str]:
    if schema.get("format") == "date-time":
        return st.just("2026-01-01T00:00:00Z")
    longest = schema.get("maxLength", 40)
    if "pattern" in schema:
        pattern = schema["pattern"].removesuffix("$") + r"\Z"
        return st.from_regex(pattern).filter(lambda text: len(text) <= longest)
    return st.text(
        st.characters(codec="ascii", categories=["L", "N"]), min_size=schema.get("minLength", 0), max_size=longest
    )


def _mapping(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        keys = st.sampled_from(["Worker", "Master", "AIMaster", "Eval", "cpu", "memory", "jobs"])
        return st.dictionaries(keys, conforming(values), min_size=schema.get("minProperties", 0), max_size=3)
    known = {name: conforming(child) for name, child in (schema.get("properties") or {}).items()}
    required = {name: known.pop(name) for name in schema.get("required") or ()}
    return st.fixed_dictionaries(required, optional=known)


@st.composite
def conforming_objects(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Draw a new object of a kind."""
    root = ROOTS[kind]["properties"]
    made = {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": draw(st.sampled_from(["a", "train-1", "a" * 40, "a" * 41, "0a", "A", "é", "a" * 63]))},
        "spec": draw(conforming(root["spec"])),
    }
    if draw(st.booleans()):
        made["metadata"]["annotations"] = {"x": draw(TEXTS)}
    return made


SANE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}, "annotations": {}},
    "spec": {
        "containers": [
            {
                "name": "torch",
                "image": "x",
                "command": ["python", "train.py"],
                "env": [{"name": "A", "value": "b"}],
                "ports": [{"name": "torchjob-port", "containerPort": 2222}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}},
            }
        ],
        "initContainers": [{"name": "init", "image": "x"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}
"""A valid pod template."""


@st.composite
def running_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a job whose spec is within its bounds, with at most one strange value in each template."""
    known = ROOTS["TorchJob"]["properties"]["spec"]["properties"]
    plain = {name: conforming(child) for name, child in known.items() if child.get("type") not in ("object", "array")}
    tasks = {
        "Master": {"template": _odd(draw)},
        "Worker": {"template": _odd(draw), "numTasks": draw(st.sampled_from([1, 2, 3, 10_000]))},
    }
    if draw(st.booleans()):
        tasks["Worker"]["dependsOn"] = [
            {"taskType": "Master", "phase": draw(st.sampled_from(["Running", "Succeeded"]))}
        ]
    spec = draw(st.fixed_dictionaries({}, optional=plain))
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {"name": draw(st.sampled_from(["a", "train-1", "a" * 40]))},
        "spec": {**spec, "torchTaskSpecs": tasks},
    }


def _odd(draw: st.DrawFn) -> Any:
    made = copy.deepcopy(SANE)
    if draw(st.booleans()):
        spots = [path for path in places(made) if path not in (("spec",), ("spec", "containers"))]
        *steps, last = draw(st.sampled_from(spots))
        at: Any = made
        for step in steps:
            at = at[step]
        at[last] = draw(st.sampled_from(AMOUNTS) | ANY)
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a JSON value, including templates."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in items:
        yield (*path, step)
        yield from places(child, (*path, step))


@st.composite
def invalid_objects(draw: st.DrawFn, kind: str, section: str = "spec") -> dict[str, Any]:
    """Draw an object with one or two values replaced, added or removed."""
    made = copy.deepcopy(draw(conforming_objects(kind)))
    for _ in range(draw(st.integers(1, 2))):
        spots = sorted(places(made.get(section), (section,)), key=repr) or [(section,)]
        *steps, last = draw(st.sampled_from(spots))
        at: Any = made
        for step in steps:
            at = at[step]
        match draw(st.sampled_from(["replace", "add", "remove"])):
            case "add" if isinstance(at, dict):
                at[draw(KEYS)] = draw(ANY)
            case "remove" if last in at or isinstance(at, list):
                del at[last]
            case _:
                at[last] = draw(ANY)
    return made
