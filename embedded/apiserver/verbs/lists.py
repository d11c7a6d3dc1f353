"""Lists, whole or in pages.

One rule: all pages of a list show the state at the same moment: the first page selects the items of all pages.
"""

import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from crds.excerpts import excerpt
from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.status_errors import StatusError, bad_request, expired
from embedded.apiserver.storage import objects
from embedded.apiserver.storage.object_store import Store
from embedded.apiserver.storage.objects import StoredObject
from embedded.apiserver.wire import go_integers, options, request_target
from embedded.apiserver.wire.options import ListOptions
from embedded.apiserver.wire.selectors import Selector

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16}")
_OPEN_LISTS = 64
"""The most unfinished lists. The oldest is forgotten first, and requests for its pages are answered with 410."""
_LONGEST_EXCERPT = 40
"""The most characters of a wrong value that a message repeats."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """The remaining part of a list after some pages."""

    items: list[StoredObject]
    start: int
    revision: int


class Lister:
    """Answers lists from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rests: OrderedDict[str, _Rest] = OrderedDict()

    def list(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> bytes:
        """Return the List object for a request. Raise StatusError (Expired) for a page of a forgotten list."""
        list_options = options.list_options(query)
        limit = max(0, list_options.limit)
        rest = self._resume(list_options) if list_options.token else self._begin(kind, namespace, query, list_options)
        end = min(len(rest.items), rest.start + limit) if limit else len(rest.items)
        page = rest.items[rest.start : end]
        remaining = len(rest.items) - end
        metadata: dict[str, Any] = {"resourceVersion": str(rest.revision)}
        if remaining:
            token = self._remember(_Rest(rest.items, end, rest.revision))
            metadata |= {"continue": token, "remainingItemCount": remaining}
        return list_of(kind, page, metadata)

    def _begin(self, kind: Kind, namespace: str, query: Mapping[str, str], list_options: ListOptions) -> _Rest:
        selector = request_target.selector(query, kind)
        self._check_version(list_options)
        if list_options.match == "Exact":
            return self._list_at(kind, namespace, selector, go_integers.resource_version(list_options.version))
        present = self._store.items(kind.storage, namespace)
        items = [item for item in present if selector.matches(item)] if selector else present
        return _Rest(items, 0, self._store.revision)

    def _check_version(self, list_options: ListOptions) -> None:
        """Raise StatusError (BadRequest) for a malformed version, and StatusError (Timeout) for a version that is newer
        than the newest.
        """
        if not list_options.version:
            return
        version = go_integers.parse_uint(list_options.version)
        if version is None:
            text = status_errors.format_value(excerpt(list_options.version, _LONGEST_EXCERPT))
            raise bad_request(f"invalid resource version: {text}")
        if version > self._store.revision:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            message = f"Timeout: Too large resource version: {version}, current: {self._store.revision}"
            raise StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})

    def _list_at(self, kind: Kind, namespace: str, selector: Selector, version: int) -> _Rest:
        """Return the list at a version, by undoing the changes since then.

        Raise StatusError (Expired) if some of these changes are forgotten.
        """
        self._store.flush()
        present = {(item.namespace, item.name): item for item in self._store.items(kind.storage, namespace)}
        for change in reversed(list(self._store.journal(kind.storage).since(version, self._store.revision))):
            key = (change.object.namespace, change.object.name)
            present.pop(key, None)
            if change.before is not None and namespace in {"", change.object.namespace}:
                present[key] = change.before
        items = [present[key] for key in sorted(present) if selector.matches(present[key])]
        return _Rest(items, 0, version)

    def _resume(self, list_options: ListOptions) -> _Rest:
        rest = self._rests.get(list_options.token)
        if rest is None and not _TOKEN.fullmatch(list_options.token):
            token = excerpt(list_options.token, _LONGEST_EXCERPT)
            raise bad_request(f"continue key is not valid: {token!r} is no token of a list")
        if list_options.version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        if rest is None:
            raise expired("The provided continue parameter is too old to display a consistent list result: list again")
        return rest

    def _remember(self, rest: _Rest) -> str:
        token = secrets.token_urlsafe(12)
        self._rests[token] = rest
        while len(self._rests) > _OPEN_LISTS:
            self._rests.popitem(last=False)
        return token


def list_of(kind: Kind, items: list[StoredObject], metadata: dict[str, Any]) -> bytes:
    """Return the List object of a kind. Items of built-in resources have no apiVersion and kind."""
    resource = kind.resource
    head = orjson.dumps({"apiVersion": resource.api_version, "kind": resource.kind + "List", "metadata": metadata})
    type_head = b"" if kind.custom else objects.head(resource.api_version, resource.kind)
    texts = (item.raw if kind.custom else _untyped(item.raw, type_head) for item in items)
    return head[:-1] + b',"items":[' + b",".join(texts) + b"]}"


def _untyped(raw: bytes, head: bytes) -> bytes:
    if raw.startswith(head):
        return b"{" + raw[len(head) :]
    manifest = orjson.loads(raw)  # written by an earlier version of this server, in another order
    return orjson.dumps({name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}})
