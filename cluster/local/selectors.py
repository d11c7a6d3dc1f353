"""Label and field selectors: which objects a list or a watch is about.

One rule: what cannot be understood is refused, never ignored: a selector that selects too much deletes too much.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.local.objects import Stored
from cluster.local.refusals import bad_request

_TERM = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s,=!()<>]+)
      | (?P<key>[^\s,=!()<>]+)\s*
        (?:(?P<op>==|=|!=|<|>)\s*(?P<value>[^\s,()=!<>]*)
          |(?P<set>in|notin)\s*\((?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


_MOST_TERMS = 1000
"""Terms of one selector: each is asked of every object."""
_SHOWN = 200
"""Characters of a selector that a message repeats."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a set of labels (or of fields) satisfies the term."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        (bound,) = self.values
        if value is None or not _is_number(value):
            return False
        return int(value) > int(bound) if self.operator == ">" else int(value) < int(bound)


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


def parse(labels: str, fields: str, selectable: tuple[str, ...]) -> Selector:
    """Read both selectors of a request; `selectable` are the resource's own field paths."""
    if "(" in fields:
        raise bad_request(f"unable to parse field selector {fields[:_SHOWN]!r}: use =, == or !=")
    known = {"metadata.name", "metadata.namespace", *selectable}
    wanted = _terms(fields)
    for term in wanted:
        if term.key not in known:
            raise bad_request(f"field label not supported: {term.key[:_SHOWN]}")
        if term.operator not in {"in", "notin"} or len(term.values) != 1:
            raise bad_request(f"unable to parse field selector {fields[:_SHOWN]!r}: use =, == or !=")
    return Selector(_terms(labels), wanted)


def _terms(text: str) -> tuple[Requirement, ...]:
    terms: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        found = _TERM.match(text, position)
        if not found:
            rest = text[position:]
            raise bad_request(f"unable to parse requirement: {text[:_SHOWN]!r}, at {rest[:_SHOWN]!r}")
        terms.append(_requirement(found))
        if len(terms) > _MOST_TERMS:
            raise bad_request(f"a selector has at most {_MOST_TERMS} requirements")
        position = found.end()
    return tuple(terms)


def _requirement(found: re.Match[str]) -> Requirement:
    if found["absent"]:
        return Requirement(found["absent"], "absent")
    match found["op"], found["set"]:
        case None, None:
            return Requirement(found["key"], "exists")
        case None, operator:
            values = frozenset(value.strip() for value in found["values"].split(","))
            return Requirement(found["key"], operator, values)
        case ("<" | ">") as operator, _:
            if not _is_number(found["value"]):
                raise bad_request(f"unable to parse requirement: {found['key']}{operator} needs an integer")
            return Requirement(found["key"], operator, frozenset([found["value"]]))
        case operator, _:
            return Requirement(found["key"], "notin" if operator == "!=" else "in", frozenset([found["value"]]))


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?[0-9]{1,18}", text))


def _fields(stored: Stored) -> Mapping[str, str]:
    return {"metadata.name": stored.name, "metadata.namespace": stored.namespace, **stored.fields}
