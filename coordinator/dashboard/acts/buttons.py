"""The buttons of pages: links to the question before a change.

One rule: pure. A visitor who may not make a change gets no button for it.
"""

from collections.abc import Iterable

from coordinator.dashboard import paths
from coordinator.dashboard.acts.verbs import JOB, JOB_VERBS, QUEUE, QUEUE_VERBS, Verb
from coordinator.dashboard.elements import Element
from kube.api import Manifest

PATH = "/act"
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)


def of_job(item: Manifest | None, *, may_act: bool) -> tuple[Element, ...]:
    """Return the buttons of the page of a job."""
    if item is None or not may_act:
        return ()
    metadata = item["metadata"]
    return _buttons(item, JOB_VERBS, {"kind": JOB, "namespace": metadata["namespace"], "name": metadata["name"],
                                      "uid": metadata["uid"]})  # fmt: skip


def of_queue(item: Manifest | None, *, may_act: bool) -> tuple[Element, ...]:
    """Return the buttons of the page of a queue."""
    if item is None or not may_act:
        return ()
    return _buttons(item, QUEUE_VERBS, {"kind": QUEUE, "name": item["metadata"]["name"]})


def _buttons(item: Manifest, verbs: Iterable[Verb], fields: dict[str, str]) -> tuple[Element, ...]:
    shown = [verb for verb in verbs if _is_offered(verb, item)]
    return tuple(
        Element(
            f"act-{verb.name}",
            "act",
            (verb.label, paths.with_query(PATH, {"verb": verb.name, **fields}), verb.is_grave),
        )
        for verb in shown
    )


def _is_offered(verb: Verb, item: Manifest) -> bool:
    try:
        return verb.is_offered(item)
    except _UNREADABLE:  # an object that was written past all checks
        return False
