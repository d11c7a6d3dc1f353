"""Actions on many objects at once, of which single objects may cause errors.

One rule: an object that causes an error is found by halving and skipped, and the action is done on all other objects.
An error of the store, of the cluster or of leader election concerns all objects, and is raised.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from coordinator.errors import CoordinatorError
from kube.errors import ClusterError
from queues.errors import QueueError

T = TypeVar("T")
SHARED_ERRORS = (QueueError, ClusterError, CoordinatorError)
"""Errors that concern every object alike."""


def act_on_all(
    items: Sequence[T], act: Callable[[Sequence[T]], object], skip: Callable[[T, Exception], object]
) -> None:
    """Act on all items, and skip those that cause errors.

    Acting on an item again must do no harm: after an error, each half of the items is acted on. If one of 512 items
    causes an error, the isolation takes 19 actions: 10 fail, the last one on that item alone, and 9 succeed.
    """
    if not items:
        return
    try:
        act(items)
    except SHARED_ERRORS:
        raise
    except Exception as error:
        if len(items) == 1:
            skip(items[0], error)
            return
        middle = len(items) // 2
        act_on_all(items[:middle], act, skip)
        act_on_all(items[middle:], act, skip)
