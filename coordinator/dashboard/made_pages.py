"""Pages as they are now, each for its visitor.

One rule: what a visitor may not list is not read for the visitor, whatever the kind of page.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlsplit

import orjson

from coordinator.access.own_rights import AccessQuestion
from coordinator.dashboard import changes, drawing, routes
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.changes import Versions
from coordinator.dashboard.elements import DrawnPage, Page
from coordinator.dashboard.readings import Readings
from coordinator.dashboard.visitors import Lookers, Visitor
from coordinator.errors import CoordinatorError
from coordinator.query.bounds import Bounds
from coordinator.query.questions import UnknownObject
from kube import errors

MOST_PARAMETERS = 50
MOST_SHARED = 64
"""The most pages that are kept for other visitors who see the same."""
MOST_MESSAGES = 8
MOST_ADDRESSES = 1024
_NUMBERS = itertools.count(1)


class UnreadableAddress(CoordinatorError):
    """An address cannot be read."""


class MadePage:
    """A page as it was at one reading."""

    def __init__(self, page: Page, drawn: DrawnPage) -> None:
        self.page, self.drawn = page, drawn
        self._number = next(_NUMBERS)
        self._messages: dict[int, bytes] = {}

    def message(self, shown: "MadePage | Versions") -> bytes:
        """Return the changes from what a browser shows to this page, as it gets them; empty if there are none."""
        if not isinstance(shown, MadePage):
            return _message(shown, self.drawn)
        number = shown._number
        if number not in self._messages:
            # Most browsers with the same page show the same, so the comparison is made for all of them.
            if len(self._messages) >= MOST_MESSAGES:
                self._messages.clear()
            self._messages[number] = _message(changes.versions(shown.drawn), self.drawn)
        return self._messages[number]


def _message(shown: Versions, drawn: DrawnPage) -> bytes:
    found = changes.compare(shown, drawn)
    return b"data: " + orjson.dumps(found) + b"\n\n" if found else b""


class PageMaker:
    """Makes pages; safe to share between threads."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._lock = threading.Lock()
        self._shared: OrderedDict[Hashable, MadePage] = OrderedDict()
        self._is_for_all = lru_cache(MOST_ADDRESSES)(_is_for_all)

    def lookers(self, visitor: Visitor, address: str) -> Lookers:
        """Return for whom a page of a visitor is made: for all who are told the same, where the page shows nothing else
        and what the visitor is told is known; else for the visitor alone. Waits for nothing."""
        return (self._is_for_all(address) and visitor.known_bounds()) or visitor

    def make(self, lookers: Lookers, address: str) -> MadePage | None:
        """Return the page at an address as it is now; None if nothing is there for these lookers.

        Waits for servers. Raises UnreadableAddress, Unauthorized once the visitor's token is not accepted any more, and
        other CoordinatorErrors and ClusterErrors.
        """
        path, query = _split(address)
        found = routes.find(path)
        if found is None:
            return None
        route, names = found
        parameters: Mapping[str, str] = query | names
        reading = self._readings.newest()
        if isinstance(lookers, Bounds):
            return self._once(route, Asked(parameters, reading, lookers))
        bounds = lookers.bounds({name for name in (parameters.get("namespace"),) if name})
        if "namespace" in names and not bounds.reader.may_read(names["namespace"]):
            return None
        if route.load is routes.load_nothing:
            return self._once(route, Asked(parameters, reading, bounds))
        try:
            loaded = route.load(lookers, parameters)
        except (UnknownObject, errors.NotFound):
            return None
        return _made(route, Asked(parameters, reading, bounds, loaded, _may_act(lookers, route, names)))

    def _once(self, route: routes.PageRoute, asked: Asked) -> MadePage:
        key = (route, tuple(asked.parameters.items()), asked.reading.number, asked.bounds)
        with self._lock:
            kept = self._shared.get(key)
        if kept is not None:
            return kept
        made = _made(route, asked)
        with self._lock:
            kept = self._shared.setdefault(key, made)
            while len(self._shared) > MOST_SHARED:
                self._shared.popitem(last=False)
        return kept


def _may_act(visitor: Visitor, route: routes.PageRoute, names: Mapping[str, str]) -> bool:
    """Return whether the page offers the visitor to change its object."""
    if route.acts_on is None or not visitor.may_act:
        return False
    question = AccessQuestion("patch", route.acts_on, names.get("namespace", ""), names["name"])
    try:
        return visitor.may(question)
    except errors.ClusterError:  # a session whose token has ended ends with the question what it may see
        return False


def _is_for_all(address: str) -> bool:
    """Return whether a page shows nothing but what was read for everybody."""
    try:
        path, query = _split(address)
    except UnreadableAddress:
        return False
    found = routes.find(path)
    return found is not None and found[0].load is routes.load_nothing and not {"namespace"} & {*query, *found[1]}


def _split(address: str) -> tuple[str, dict[str, str]]:
    try:
        parts = urlsplit(address)
        return parts.path, dict(parse_qsl(parts.query, max_num_fields=MOST_PARAMETERS))
    except ValueError as error:
        raise UnreadableAddress("the address cannot be read") from error


def _made(route: routes.PageRoute, asked: Asked) -> MadePage:
    page = route.view(asked)
    return MadePage(page, drawing.draw(page))
