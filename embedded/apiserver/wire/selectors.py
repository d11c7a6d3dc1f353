"""Label and field selectors, which limit a list, a watch or a deletion to some objects.

One rule: a selector that cannot be parsed is refused, never ignored: a selector that selects too much deletes too much.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from crds.excerpts import excerpt
from embedded.apiserver.status_errors import bad_request
from embedded.apiserver.storage.objects import StoredObject
from embedded.apiserver.wire import label_selectors
from embedded.apiserver.wire.label_selectors import Requirement

_LONGEST_EXCERPT = 200
"""The most characters of a selector that a message repeats."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Terms on labels and on fields. An object is selected if all of them hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, stored: StoredObject) -> bool:
        """Return whether the object is selected."""
        return all(term.holds(stored.labels) for term in self.labels) and (
            not self.fields or all(term.holds(_fields(stored)) for term in self.fields)
        )

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)


def parse(labels: str, fields: str, selectable: tuple[str, ...], *, custom: bool = True) -> Selector:
    """Parse both selectors of a request; `selectable` are the resource's own field paths.

    Raise StatusError (BadRequest) if a selector cannot be parsed.
    """
    terms = label_selectors.parse(labels)
    field_terms = tuple(_term(part, fields) for part in _parts(fields) if part)
    for term in field_terms:
        if term.key not in {"metadata.name", "metadata.namespace", *selectable}:
            key = excerpt(term.key, _LONGEST_EXCERPT)
            raise bad_request(_not_supported(key, custom=custom or bool(selectable)))
    return Selector(terms, field_terms)


def _not_supported(key: str, *, custom: bool) -> str:
    if custom:
        return f"field label not supported: {key}"
    return f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _parts(fields: str) -> list[str]:
    """Return the terms, which are separated by commas without a backslash."""
    return sorted(re.findall(r"(?:\\.|[^,\\])+", fields, re.DOTALL))


def _term(part: str, whole: str) -> Requirement:
    match = re.match(r"([^=!]*(?:![^=])*)(!=|==|=)(.*)", part, re.DOTALL)
    if match is None:
        selector, term = excerpt(whole, _LONGEST_EXCERPT), excerpt(part, _LONGEST_EXCERPT)
        raise bad_request(f"invalid selector: '{selector}'; can't understand '{term}'")
    value = re.sub(r"\\([\\,=])", r"\1", match[3])
    return Requirement(match[1], "notin" if match[2] == "!=" else "in", frozenset([value]))


def _fields(stored: StoredObject) -> Mapping[str, str]:
    return {"metadata.name": stored.name, "metadata.namespace": stored.namespace, **stored.fields}
