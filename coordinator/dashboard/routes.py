"""Which page is at which path.

One rule: `load` reads, with the rights of the visitor; `view` is pure and decides what the page shows.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from coordinator.dashboard.acts import buttons
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Page
from coordinator.dashboard.pages import act, job, jobs, queue, queues, usage
from coordinator.dashboard.visitors import Visitor
from crds.api_resources import TENANT_QUEUES, TORCHJOBS, Resource


def load_nothing(_visitor: Visitor, _parameters: Mapping[str, str]) -> None:
    """Read nothing beside what is read for everybody."""


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A kind of page."""

    pattern: str
    """The path; {name} is a part that becomes a parameter."""
    view: Callable[[Asked], Page]
    load: Callable[[Visitor, Mapping[str, str]], Any] = load_nothing
    """Reads what only this page shows; the value becomes `Asked.loaded`. Waits for servers, so no event loop calls
    it. Raises CoordinatorError, ClusterError."""
    acts_on: Resource | None = None
    """The kind of the object whose page it is, if pages offer to change it."""

    def match(self, path: str) -> dict[str, str] | None:
        """Return the parts of a path that fits; None if it does not."""
        expression = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.pattern)
        found = re.fullmatch(expression, path)
        return None if found is None else {name: unquote(part) for name, part in found.groupdict().items()}


ROUTES = (
    PageRoute("/", queues.page),
    PageRoute("/queues/{name}", queue.page, queue.load, TENANT_QUEUES),
    PageRoute(usage.PATH, usage.page, usage.load),
    PageRoute(usage.SHEET_PATH, usage.sheet, usage.load),
    PageRoute(jobs.PATH, jobs.page, jobs.load),
    PageRoute("/jobs/{namespace}/{name}", job.page, job.load, TORCHJOBS),
    PageRoute(buttons.PATH, act.page, act.load),
)


def find(path: str) -> tuple[PageRoute, dict[str, str]] | None:
    """Return the kind of page at a path and the parts of the path; None if nothing is there."""
    for route in ROUTES:
        parts = route.match(path)
        if parts is not None:
            return route, parts
    return None
