"""Label and field selectors: which objects a list or a watch is about.

One rule: what cannot be understood is refused, never ignored: a selector that selects too much deletes too much.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from embedded.apiserver.status_errors import bad_request
from embedded.apiserver.storage.objects import Stored
from embedded.apiserver.wire import label_selectors
from embedded.apiserver.wire.label_selectors import Requirement

_SHOWN = 200
"""Characters of a selector that a message repeats."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Terms on labels and on fields, all of which must hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, stored: Stored) -> bool:
        """Whether the object is selected."""
        return all(term.holds(stored.labels) for term in self.labels) and (
            not self.fields or all(term.holds(_fields(stored)) for term in self.fields)
        )

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)


def parse(labels: str, fields: str, selectable: tuple[str, ...], *, custom: bool = True) -> Selector:
    """Read both selectors of a request; `selectable` are the resource's own field paths. BadRequest."""
    terms = label_selectors.parse(labels)
    wanted = tuple(_term(part, fields) for part in _parts(fields) if part)
    for term in wanted:
        if term.key not in {"metadata.name", "metadata.namespace", *selectable}:
            raise bad_request(_unsupported(term.key[:_SHOWN], custom=custom or bool(selectable)))
    return Selector(terms, wanted)


def _unsupported(key: str, *, custom: bool) -> str:
    if custom:
        return f"field label not supported: {key}"
    return f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _parts(fields: str) -> list[str]:
    """The terms, parted by commas that are not escaped."""
    return sorted(re.findall(r"(?:\\.|[^,\\])+", fields, re.DOTALL))


def _term(part: str, whole: str) -> Requirement:
    found = re.match(r"([^=!]*(?:![^=])*)(!=|==|=)(.*)", part, re.DOTALL)
    if found is None:
        raise bad_request(f"invalid selector: '{whole[:_SHOWN]}'; can't understand '{part[:_SHOWN]}'")
    value = re.sub(r"\\([\\,=])", r"\1", found[3])
    return Requirement(found[1], "notin" if found[2] == "!=" else "in", frozenset([value]))


def _fields(stored: Stored) -> Mapping[str, str]:
    return {"metadata.name": stored.name, "metadata.namespace": stored.namespace, **stored.fields}
