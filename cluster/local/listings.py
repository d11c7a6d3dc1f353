"""Lists, whole or in pages.

One rule: all pages of a list show the same moment: the later ones are cut from what was chosen for the first.
"""

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cluster.local import requests
from cluster.local.catalog import Kind
from cluster.local.objects import Stored
from cluster.local.refusals import expired
from cluster.local.store import Store

_OPEN_LISTS = 64
"""Lists whose next page somebody may still ask for; the oldest is forgotten first and its pages answered with 410."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of a list after some pages."""

    items: list[Stored]
    start: int
    revision: int


class Lister:
    """Answers lists from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rests: OrderedDict[str, _Rest] = OrderedDict()

    def list(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> bytes:
        """The List object for a request. Expired for a page of a forgotten list."""
        limit = max(0, requests.integer("limit", query.get("limit") or 0))
        token = query.get("continue", "")
        rest = self._resume(token) if token else self._begin(kind, namespace, query)
        end = min(len(rest.items), rest.start + limit) if limit else len(rest.items)
        page = rest.items[rest.start : end]
        left = len(rest.items) - end
        following = self._keep(_Rest(rest.items, end, rest.revision)) if left else ""
        return _encode(kind, page, rest.revision, following, left)

    def _begin(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> _Rest:
        chosen = requests.selector(query, kind)
        found = self._store.items(kind.storage, namespace)
        items = [item for item in found if chosen.matches(item)] if chosen else found
        return _Rest(items, 0, self._store.revision)

    def _resume(self, token: str) -> _Rest:
        rest = self._rests.get(token)
        if rest is None:
            raise expired("The provided continue parameter is too old to display a consistent list result: list again")
        return rest

    def _keep(self, rest: _Rest) -> str:
        token = secrets.token_urlsafe(12)
        self._rests[token] = rest
        while len(self._rests) > _OPEN_LISTS:
            self._rests.popitem(last=False)
        return token


def _encode(kind: Kind, page: list[Stored], revision: int, following: str, left: int) -> bytes:
    own: dict[str, Any] = {"resourceVersion": str(revision)}
    if following:
        own |= {"continue": following, "remainingItemCount": left}
    head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind + "List", "metadata": own}
    return orjson.dumps(head)[:-1] + b',"items":[' + b",".join(item.raw for item in page) + b"]}"
