"""Size limits of a TorchJob: an object larger than any useful job is refused before it is parsed.

One rule: a check costs no more than the limits allow, whatever the object holds: every collection is counted before it
is walked.

A template is opaque, so an API server stores whatever a user writes in it. The lists of a template that torchq reads
are limited in the schema, too (`crds.torchjob.tasks`); the size of the whole job is limited only here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crds import labels
from crds.errors import Problem

MOST_VALUES = 20_000
"""Maximum number of values in all templates of a job: maps, lists and their contents. A usual job has some hundreds."""
MOST_QUANTITIES = 500
"""Maximum number of resource quantities in all containers of a job."""
MOST_CONTAINERS = 64
"""Maximum number of containers of a template, and of its init containers."""
MOST_RESOURCES = 64
"""Maximum number of resources in one list of requests or limits."""
MOST_FIELDS = 64
"""Maximum number of fields of a spec or of a task, known or unknown."""
MOST_TASK_TYPES = 16
MOST_METADATA = 5_000
"""Maximum number of labels, annotations, finalizers or owners of a job."""
MOST_LABELS = 64
"""Number of labels or annotations up to which all are kept.

Of a larger map, only the entries that torchq reads are kept.
"""
DEEPEST = 100
"""Maximum nesting depth of the maps and lists of a template; a pod needs less than 20."""
TASKS = "spec.torchTaskSpecs"
TOO_DEEP = f"Invalid value: must not be nested deeper than {DEEPEST} levels"
_SHORTENED = ("labels", "annotations", "finalizers", "ownerReferences")
_READ_BY_TORCHQ = tuple(
    name for name in vars(labels).values() if isinstance(name, str) and name.startswith(f"{labels.GROUP}/")
)


class LargeObject(dict[str, Any]):
    """An object with long JSON text; its size is checked before it is parsed."""


class ObjectWithoutSpec(LargeObject):
    """An object that was read without its spec, because it holds too many values."""


def problem(manifest: Any) -> Problem | None:
    """Return the first size limit that a manifest exceeds; None if it exceeds none, or has not the shape of a job."""
    if isinstance(manifest, ObjectWithoutSpec):
        return Problem("spec", f"Too long: all tasks together may hold at most {MOST_VALUES} values")
    match manifest:
        case {"metadata": dict(metadata), "spec": dict(spec)}:
            return next(_metadata_problems(metadata), None) or next(_spec_problems(spec), None)
    return None


def has_long_metadata(metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata holds more labels, annotations, finalizers or owners than a job may have."""
    for name in _SHORTENED:
        value = metadata.get(name)
        if isinstance(value, dict | list) and len(value) > MOST_METADATA:
            return True
    return False


def trim_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata in which each overlong map keeps only the entries that torchq reads.

    An overlong list of owners or finalizers keeps only its first entries.
    """
    long = {name: _shorten(value) for name, value in metadata.items() if _is_long(name, value)}
    return {**metadata, **long} if long else metadata


def count_values(value: Any, most: int) -> int:
    """Return the number of values that a value holds, including itself.

    The result is any number above `most` if the value holds more, and -1 if it is nested too deeply.
    """
    level, count = [value], 1
    for _ in range(DEEPEST):
        count += sum(map(len, level))
        if count > most:
            return count
        level = [
            inner
            for container in level
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return count
    return -1


def too_many(where: str, count: int, most: int) -> Problem:
    """Return the problem of too many items, in the words of an API server."""
    return Problem(where, f"Too many: {count}: must have at most {most} items")


def _metadata_problems(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    for name in _SHORTENED:
        value = metadata.get(name)
        if isinstance(value, dict | list) and len(value) > MOST_METADATA:
            yield too_many(f"metadata.{name}", len(value), MOST_METADATA)


def _spec_problems(spec: dict[Any, Any]) -> Iterator[Problem]:
    tasks, least = spec.get("torchTaskSpecs"), spec.get("minMembers")
    if len(spec) > MOST_FIELDS:
        yield too_many("spec", len(spec), MOST_FIELDS)
    if isinstance(least, dict) and len(least) > MOST_TASK_TYPES:
        yield too_many("spec.minMembers", len(least), MOST_TASK_TYPES)
    if not isinstance(tasks, dict):
        return
    if len(tasks) > MOST_TASK_TYPES:
        yield too_many(TASKS, len(tasks), MOST_TASK_TYPES)
    yield from _task_problems({name: task for name, task in tasks.items() if isinstance(task, dict)})


def _task_problems(tasks: Mapping[Any, dict[Any, Any]]) -> Iterator[Problem]:
    remaining = MOST_VALUES
    for name, task in tasks.items():
        count = count_values(task, remaining)
        if count < 0:
            yield Problem(f"{TASKS}.{name}.template", TOO_DEEP)
        remaining -= count
        if remaining < 0:
            yield Problem(TASKS, f"Too long: all tasks together may hold at most {MOST_VALUES} values")
    for name, task in tasks.items():
        yield from _list_problems(f"{TASKS}.{name}", task)
    total = sum(len(quantities) for task in tasks.values() for quantities in _quantity_maps(_pod_spec(task)))
    if total > MOST_QUANTITIES:
        yield Problem(
            TASKS, f"Too many: {total}: all containers together may have at most {MOST_QUANTITIES} quantities"
        )


def _list_problems(at: str, task: dict[Any, Any]) -> Iterator[Problem]:
    spot, spec = task.get("spotTaskSpec"), _pod_spec(task)
    bounded = (
        (at, task, MOST_FIELDS),
        (f"{at}.dependsOn", task.get("dependsOn"), MOST_TASK_TYPES),
        (f"{at}.spotTaskSpec.labels", spot.get("labels") if isinstance(spot, dict) else None, MOST_LABELS),
        (f"{at}.template.spec.containers", spec.get("containers"), MOST_CONTAINERS),
        (f"{at}.template.spec.initContainers", spec.get("initContainers"), MOST_CONTAINERS),
    )
    for where, value, most in bounded:
        if isinstance(value, dict | list) and len(value) > most:
            yield too_many(where, len(value), most)


def _pod_spec(task: dict[Any, Any]) -> dict[Any, Any]:
    match task:
        case {"template": {"spec": dict(spec)}}:
            return spec
    return {}


def _quantity_maps(spec: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    holders = [spec]
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind)
        holders += (
            [container for container in containers if isinstance(container, dict)]
            if isinstance(containers, list)
            else []
        )
    for holder in holders:
        resources = holder.get("resources")
        lists = [resources.get("requests"), resources.get("limits")] if isinstance(resources, dict) else []
        yield from (quantities for quantities in lists if isinstance(quantities, dict))
    if isinstance(spec.get("overhead"), dict):
        yield spec["overhead"]


def _is_long(name: str, value: Any) -> bool:
    return name in _SHORTENED and isinstance(value, dict | list) and len(value) > MOST_LABELS


def _shorten(value: dict[str, Any] | list[Any]) -> dict[str, Any] | list[Any]:
    if isinstance(value, list):
        return value[:MOST_LABELS]
    return {name: value[name] for name in _READ_BY_TORCHQ if name in value}
