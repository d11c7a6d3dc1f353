"""The conditions in the status of a pod, of a node, or of a PodGroup.

One rule: pure. The time of a condition changes only when its status changes, and conditions of other writers stay.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from crds import timestamps

Status = dict[str, Any]
"""The status of an object, or a part of it that is to be written."""


def condition(kind: str, true: bool, reason: str = "", message: str = "") -> dict[str, str]:
    """Return a condition that has no time yet."""
    fields = {"type": kind, "status": "True" if true else "False", "reason": reason, "message": message}
    return {name: text for name, text in fields.items() if text}


def well_formed(conditions: Any) -> list[Mapping[str, Any]]:
    """Return the items that are conditions: other writers may have put anything into the list."""
    items = conditions if isinstance(conditions, list | tuple) else ()
    return [item for item in items if isinstance(item, Mapping) and isinstance(item.get("type"), str)]


def merge_conditions(
    before: Iterable[Mapping[str, Any]], updates: Iterable[dict[str, str]], now: float
) -> list[dict[str, Any]]:
    """Return the conditions in `before`, replaced or extended by the updates.

    Conditions of other types stay as they are. The time of a condition changes only with its status.
    """
    conditions = {condition["type"]: dict(condition) for condition in well_formed(before)}
    for new in updates:
        old = conditions.get(new["type"], {})
        changed_at = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
        conditions[new["type"]] = {**new, "lastTransitionTime": changed_at or timestamps.format_time(now)}
    return list(conditions.values())


def differs(status: Status, before: Mapping[str, Any]) -> bool:
    """Return whether any field of a status differs from the status before."""
    return any(before.get(name) != value for name, value in status.items())
