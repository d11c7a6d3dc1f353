"""Lists, whole or in pages.

One rule: all pages of a list show the same moment: the later ones are cut from what was chosen for the first.
"""

import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.status_errors import bad_request, expired
from embedded.apiserver.storage import objects
from embedded.apiserver.storage.objects import Stored
from embedded.apiserver.storage.store import Store
from embedded.apiserver.wire import integers, options, request
from embedded.apiserver.wire.options import ListOptions
from embedded.apiserver.wire.selectors import Selector

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16}")
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
        asked = options.listing(query)
        limit = max(0, asked.limit)
        rest = self._resume(asked) if asked.token else self._begin(kind, namespace, query, asked)
        end = min(len(rest.items), rest.start + limit) if limit else len(rest.items)
        page = rest.items[rest.start : end]
        left = len(rest.items) - end
        following = self._keep(_Rest(rest.items, end, rest.revision)) if left else ""
        return _encode(kind, page, rest.revision, following, left)

    def _begin(self, kind: Kind, namespace: str, query: Mapping[str, str], asked: ListOptions) -> _Rest:
        chosen = request.selector(query, kind)
        self._check_version(asked)
        if asked.match == "Exact":
            return self._past(kind, namespace, chosen, integers.version(asked.version))
        found = self._store.items(kind.storage, namespace)
        items = [item for item in found if chosen.matches(item)] if chosen else found
        return _Rest(items, 0, self._store.revision)

    def _check_version(self, asked: ListOptions) -> None:
        """Refuse a version that is none, is yet to come, or is past: what was then is not kept."""
        if not asked.version:
            return
        version = integers.unsigned(asked.version)
        if version is None:
            raise bad_request(f"invalid resource version: {status_errors.shown(asked.version[:40])}")
        if version > self._store.revision:
            raise status_errors.too_large(version, self._store.revision)

    def _past(self, kind: Kind, namespace: str, chosen: Selector, version: int) -> _Rest:
        """The list as it was at a version: the changes since then, undone. Expired."""
        self._store.flush()
        present = {(item.namespace, item.name): item for item in self._store.items(kind.storage, namespace)}
        for change in reversed(list(self._store.journal(kind.storage).since(version, self._store.revision))):
            place = (change.object.namespace, change.object.name)
            present.pop(place, None)
            if change.before is not None and namespace in {"", change.object.namespace}:
                present[place] = change.before
        items = [present[place] for place in sorted(present) if chosen.matches(present[place])]
        return _Rest(items, 0, version)

    def _resume(self, asked: ListOptions) -> _Rest:
        rest = self._rests.get(asked.token)
        if rest is None and not _TOKEN.fullmatch(asked.token):
            raise bad_request(f"continue key is not valid: {asked.token[:40]!r} is no token of a list")
        if asked.version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
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
    return list_of(kind, page, own)


def list_of(kind: Kind, items: list[Stored], metadata: dict[str, Any]) -> bytes:
    """The List object of a kind. Items of built-in resources carry no type of their own."""
    resource = kind.resource
    head = orjson.dumps({"apiVersion": resource.api_version, "kind": resource.kind + "List", "metadata": metadata})
    type_head = b"" if kind.custom else objects.head(resource.api_version, resource.kind)
    shown = (item.raw if kind.custom else _untyped(item.raw, type_head) for item in items)
    return head[:-1] + b',"items":[' + b",".join(shown) + b"]}"


def _untyped(raw: bytes, head: bytes) -> bytes:
    if raw.startswith(head):
        return b"{" + raw[len(head) :]
    manifest = orjson.loads(raw)  # kept by an earlier version of this server
    return orjson.dumps({name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}})
