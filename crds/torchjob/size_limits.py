"""Size limits of a TorchJob: an object larger than any useful job is refused before it is parsed.

One rule: a check costs no more than the limits allow, whatever the object holds: every collection is counted before it
is walked.

A template is opaque, so an API server stores whatever a user writes in it. The lists of a template that torchq reads
are limited in the schema, too (`crds.torchjob.tasks`); the size of the whole job is limited only here.
"""

from collections.abc import Iterable, Iterator, Mapping
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
    """Return the first size limit that a manifest exceeds; None if the manifest exceeds no limit, or does not have the
    shape of a job.
    """
    if isinstance(manifest, ObjectWithoutSpec):
        return Problem("spec", f"Too long: all tasks together may hold at most {MOST_VALUES} values")
    match manifest:
        case {"metadata": dict(metadata), "spec": dict(spec)}:
            return next(_metadata_problems(metadata), None) or next(_spec_problems(spec), None)
    return None


def has_long_metadata(metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata holds more labels, annotations, finalizers or owners than a job may have."""
    return any(_metadata_problems(metadata))


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
    yield from _exceeding((f"metadata.{name}", metadata.get(name), MOST_METADATA) for name in _SHORTENED)


def _exceeding(bounded: Iterable[tuple[str, Any, int]]) -> Iterator[Problem]:
    """Yield the problems of fields whose values have more items than they may."""
    for where, value, most in bounded:
        if isinstance(value, dict | list) and len(value) > most:
            yield too_many(where, len(value), most)


def _spec_problems(spec: dict[Any, Any]) -> Iterator[Problem]:
    least, tasks = _mapping(spec, "minMembers"), _mapping(spec, "torchTaskSpecs")
    bounded = (
        ("spec", spec, MOST_FIELDS),
        ("spec.minMembers", least, MOST_TASK_TYPES),
        (TASKS, tasks, MOST_TASK_TYPES),
    )
    yield from _exceeding(bounded)
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
        yield from _exceeding(_bounded_fields(f"{TASKS}.{name}", task))
    total = sum(len(quantities) for task in tasks.values() for quantities in _quantity_maps(_pod_spec(task)))
    if total > MOST_QUANTITIES:
        yield Problem(
            TASKS, f"Too many: {total}: all containers together may have at most {MOST_QUANTITIES} quantities"
        )


def _bounded_fields(at: str, task: dict[Any, Any]) -> tuple[tuple[str, Any, int], ...]:
    spec = _pod_spec(task)
    return (
        (at, task, MOST_FIELDS),
        (f"{at}.dependsOn", task.get("dependsOn"), MOST_TASK_TYPES),
        (f"{at}.spotTaskSpec.labels", _mapping(task, "spotTaskSpec").get("labels"), MOST_LABELS),
        (f"{at}.template.spec.containers", spec.get("containers"), MOST_CONTAINERS),
        (f"{at}.template.spec.initContainers", spec.get("initContainers"), MOST_CONTAINERS),
    )


def _pod_spec(task: dict[Any, Any]) -> dict[Any, Any]:
    return _mapping(_mapping(task, "template"), "spec")


def _mapping(holder: dict[Any, Any], name: str) -> dict[Any, Any]:
    """Return the mapping that a field holds; empty if it holds anything else."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _quantity_maps(spec: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    holders = [spec]
    for kind in ("containers", "initContainers"):
        listed = spec.get(kind)
        holders += [each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict)]
    for holder in holders:
        resources = _mapping(holder, "resources")
        yield from (_mapping(resources, "requests"), _mapping(resources, "limits"))
    yield _mapping(spec, "overhead")


def _is_long(name: str, value: Any) -> bool:
    return name in _SHORTENED and isinstance(value, dict | list) and len(value) > MOST_LABELS


def _shorten(value: dict[str, Any] | list[Any]) -> dict[str, Any] | list[Any]:
    if isinstance(value, list):
        return value[:MOST_LABELS]
    return {name: value[name] for name in _READ_BY_TORCHQ if name in value}
