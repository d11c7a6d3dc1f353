"""How much of a TorchJob is looked at: what is larger than any job has to be is refused before it is parsed.

One rule: asking costs no more than the bounds allow, whatever the object holds: nothing is walked through that has not
been counted first.

A template is opaque, so an API server keeps in it whatever a user writes; the lists of it that are read are bounded in
the schema, too (`crds.torchjob.tasks`), and the job as a whole only here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crds import labels
from crds.errors import Problem

MOST_VALUES = 20_000
"""Values in all templates of a job together: maps, lists and what they hold. A usual job has some hundreds."""
MOST_QUANTITIES = 500
"""Quantities that all containers of a job ask for together."""
MOST_CONTAINERS = 64
"""Containers of a template, and as many init containers."""
MOST_RESOURCES = 64
"""Resources in one list of requests or limits."""
MOST_FIELDS = 64
"""Fields of a spec or of a task, known or not."""
MOST_TASK_TYPES = 16
MOST_METADATA = 5_000
"""Labels, annotations, finalizers or owners of a job."""
MOST_MARKS = 64
"""Labels or annotations of an object that are all kept; of more only those that are read."""
DEEPEST = 100
"""How deep the maps and lists of a template may be nested: a pod needs less than 20."""
TASKS = "spec.torchTaskSpecs"
DEEP = f"Invalid value: must not be nested deeper than {DEEPEST} levels"
_SLIMMED = ("labels", "annotations", "finalizers", "ownerReferences")
_READ = tuple(name for name in vars(labels).values() if isinstance(name, str) and name.startswith(f"{labels.GROUP}/"))


class Long(dict[str, Any]):
    """An object whose JSON is long, so that it is looked at with care."""


class Outlined(Long):
    """One that was read without its spec, because it holds too many values."""


def problem(manifest: Any) -> Problem | None:
    """What of a manifest is too large; None if nothing is, or if it is not even the shape of a job."""
    if isinstance(manifest, Outlined):
        return Problem("spec", f"Too long: all tasks together may hold at most {MOST_VALUES} values")
    match manifest:
        case {"metadata": dict(metadata), "spec": dict(spec)}:
            return next(_of_metadata(metadata), None) or next(_of_spec(spec), None)
    return None


def is_long(metadata: Mapping[str, Any]) -> bool:
    """Whether metadata holds more of something than a job may have."""
    for name in _SLIMMED:
        value = metadata.get(name)
        if isinstance(value, dict | list) and len(value) > MOST_METADATA:
            return True
    return False


def slim(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata without the labels and annotations that are read by nobody, where there are very many; owners and
    finalizers likewise."""
    long = {name: _short(value) for name, value in metadata.items() if _is_long(name, value)}
    return {**metadata, **long} if long else metadata


def values(value: Any, most: int) -> int:
    """How many values a value holds, itself included; any number above `most` if it is more, -1 if it is nested too
    deep."""
    level, found = [value], 1
    for _ in range(DEEPEST):
        found += sum(map(len, level))
        if found > most:
            return found
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return found
    return -1


def too_many(where: str, count: int, most: int) -> Problem:
    """As an API server words it."""
    return Problem(where, f"Too many: {count}: must have at most {most} items")


def _of_metadata(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    for name in _SLIMMED:
        value = metadata.get(name)
        if isinstance(value, dict | list) and len(value) > MOST_METADATA:
            yield too_many(f"metadata.{name}", len(value), MOST_METADATA)


def _of_spec(spec: dict[Any, Any]) -> Iterator[Problem]:
    tasks, least = spec.get("torchTaskSpecs"), spec.get("minMembers")
    if len(spec) > MOST_FIELDS:
        yield too_many("spec", len(spec), MOST_FIELDS)
    if isinstance(least, dict) and len(least) > MOST_TASK_TYPES:
        yield too_many("spec.minMembers", len(least), MOST_TASK_TYPES)
    if not isinstance(tasks, dict):
        return
    if len(tasks) > MOST_TASK_TYPES:
        yield too_many(TASKS, len(tasks), MOST_TASK_TYPES)
    yield from _of_tasks({name: task for name, task in tasks.items() if isinstance(task, dict)})


def _of_tasks(tasks: Mapping[Any, dict[Any, Any]]) -> Iterator[Problem]:
    left = MOST_VALUES
    for name, task in tasks.items():
        found = values(task, left)
        if found < 0:
            yield Problem(f"{TASKS}.{name}.template", DEEP)
        left -= found
        if left < 0:
            yield Problem(TASKS, f"Too long: all tasks together may hold at most {MOST_VALUES} values")
    for name, task in tasks.items():
        yield from _of_lists(f"{TASKS}.{name}", task)
    asked = sum(len(each) for task in tasks.values() for each in _lists_of_quantities(_pod_spec(task)))
    if asked > MOST_QUANTITIES:
        yield Problem(
            TASKS, f"Too many: {asked}: all containers together may have at most {MOST_QUANTITIES} quantities"
        )


def _of_lists(at: str, task: dict[Any, Any]) -> Iterator[Problem]:
    spot, spec = task.get("spotTaskSpec"), _pod_spec(task)
    bounded = (
        (at, task, MOST_FIELDS),
        (f"{at}.dependsOn", task.get("dependsOn"), MOST_TASK_TYPES),
        (f"{at}.spotTaskSpec.labels", spot.get("labels") if isinstance(spot, dict) else None, MOST_MARKS),
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


def _lists_of_quantities(spec: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    askers = [spec]
    for kind in ("containers", "initContainers"):
        found = spec.get(kind)
        askers += [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    for each in askers:
        resources = each.get("resources")
        asked = [resources.get("requests"), resources.get("limits")] if isinstance(resources, dict) else []
        yield from (quantities for quantities in asked if isinstance(quantities, dict))
    if isinstance(spec.get("overhead"), dict):
        yield spec["overhead"]


def _is_long(name: str, value: Any) -> bool:
    return name in _SLIMMED and isinstance(value, dict | list) and len(value) > MOST_MARKS


def _short(value: dict[str, Any] | list[Any]) -> dict[str, Any] | list[Any]:
    if isinstance(value, list):
        return value[:MOST_MARKS]
    return {name: value[name] for name in _READ if name in value}
