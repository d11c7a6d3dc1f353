"""Label and field selectors, which limit a list, a watch or a deletion to some objects.

One rule: a selector that cannot be parsed is refused, never ignored: a selector that selects too much deletes too much.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crds.excerpts import excerpt
from embedded.apiserver.kinds import object_meta
from embedded.apiserver.status_errors import bad_request, format_value
from embedded.apiserver.storage.objects import StoredObject

_LONGEST_EXCERPT = 200
"""The most characters of a selector that a message repeats."""


_TOKEN = re.compile(r"[ \t\r\n]*(?:(?P<special>==|!=|[=<>!(),])|(?P<word>[^ \t\r\n=!(),<>]+)|(?P<end>$))")
_SIGNS = ("in", "notin", "=", "==", "!=", "gt", "lt")
_END = ("end", "")
_MOST_TERMS = 1000
"""The most terms of one selector: each is tested on every object."""
_LONGEST_EXCERPT = 200
"""The most characters of a selector that a message repeats."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether a set of labels (or of fields) satisfies the term."""
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


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Return the terms of a label selector: `app=a,tier in (x,y),!old`, by the grammar of k8s.io/apimachinery.

    Raise StatusError (BadRequest), with the messages of that grammar, if it cannot be parsed.
    """
    return _LabelParser(text).terms()


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = [(match.lastgroup or "", match[match.lastgroup or 0]) for match in _TOKEN.finditer(text)]
        if not self._tokens or self._tokens[-1] != _END:
            self._tokens.append(_END)
        self._next = 0

    def terms(self) -> tuple[Requirement, ...]:
        requirements: list[Requirement] = []
        while self._peek() != _END:
            if not self._begins():
                raise _not_expected(self._peek(), "!, identifier, or 'end of string'")
            try:
                requirements.append(self._term())
            except _LabelError as error:
                raise bad_request(f"unable to parse requirement: {error}") from None
            if len(requirements) > _MOST_TERMS:
                raise bad_request(f"a selector has at most {_MOST_TERMS} requirements")
            self._separate()
        return tuple(requirements)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[min(self._next, len(self._tokens) - 1)]

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._next += 1
        return token

    def _begins(self) -> bool:
        return self._peek()[0] == "word" or self._peek()[1] == "!"

    def _separate(self) -> None:
        token = self._take()
        if token[1] == ",":
            if not self._begins():
                raise bad_request(f"found '{_excerpt(self._peek()[1])}', expected: identifier after ','")
        elif token != _END:
            raise _not_expected(token, "',' or 'end of string'")

    def _term(self) -> Requirement:
        absent = self._peek()[1] == "!"
        if absent:
            self._take()
        kind, key = self._take()
        if kind != "word":
            raise _LabelError(f"found '{key}', expected: identifier")
        _check(object_meta.label_key_problems(key), key, "<nil>")
        if absent and (self._peek() == _END or self._peek()[1] == ","):
            return Requirement(key, "absent")
        if self._peek() == _END or self._peek()[1] == ",":
            return Requirement(key, "exists")
        if absent:  # as in that grammar, `!a=b` is no negation
            return Requirement(key, "absent") if self._peek() == _END else self._comparison(key)
        return self._comparison(key)

    def _comparison(self, key: str) -> Requirement:
        _, sign = self._take()
        if sign in {"in", "notin"}:
            return _requirement(key, sign, self._set())
        if sign not in {"=", "==", "!=", "<", ">"}:
            raise _LabelError(f"found '{_excerpt(sign)}', expected: {', '.join(_SIGNS)}")
        return _requirement(key, {"!=": "notin", "<": "<", ">": ">"}.get(sign, "in"), [self._value()])

    def _value(self) -> str:
        if self._peek() == _END or self._peek()[1] == ",":
            return ""
        kind, text = self._take()
        if kind != "word":
            raise _LabelError(f"found '{text}', expected: identifier")
        return text

    def _set(self) -> list[str]:
        text = self._take()[1]
        if text != "(":
            raise _LabelError(f"found '{_excerpt(text)}' expected: '('")
        values = []
        while True:
            kind, text = self._peek()
            values.append(text if kind == "word" else "")
            if kind == "word":
                self._take()
            text = self._take()[1]
            if text == ")":
                return values
            if text != ",":
                raise _LabelError(f"found '{_excerpt(text)}', expected: ',' or ')'")


class _LabelError(Exception):
    """A term cannot be parsed."""


def _excerpt(text: str) -> str:
    return excerpt(text, _LONGEST_EXCERPT)


def _not_expected(token: tuple[str, str], expected: str) -> Exception:
    return bad_request(f"found '{_excerpt(token[1])}', expected: {expected}")


def _requirement(key: str, sign: str, values: list[str]) -> Requirement:
    for index, value in enumerate(sorted(set(values))):
        if sign in {"<", ">"} and not _is_number(value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _LabelError(f"values[{index}]: Invalid value: {format_value(_excerpt(value))}: {detail}")
        _check(object_meta.label_value_problems(value), value, f"values[{index}][{_excerpt(key)}]")
    return Requirement(key, sign, frozenset(values))


def _check(problems: Sequence[str], text: str, where: str) -> None:
    if problems:
        raise _LabelError(f"{where}: Invalid value: {format_value(_excerpt(text))}: {'; '.join(problems)}")


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?[0-9]{1,18}", text))


@dataclass(frozen=True, slots=True)
class Selector:
    """Terms on labels and on fields. An object is selected if all terms hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, stored: StoredObject) -> bool:
        """Return whether the object is selected."""
        return all(term.holds(stored.labels) for term in self.labels) and all(
            term.holds({"metadata.name": stored.name, "metadata.namespace": stored.namespace, **stored.fields})
            for term in self.fields
        )

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)


def parse(labels: str, fields: str, selectable: tuple[str, ...], *, custom: bool = True) -> Selector:
    """Parse both selectors of a request; `selectable` are the resource's own field paths.

    Raise StatusError (BadRequest) if a selector cannot be parsed.
    """
    terms = parse_labels(labels)
    parts = sorted(re.findall(r"(?:\\.|[^,\\])+", fields, re.DOTALL))  # separated by commas without a backslash
    field_terms = tuple(_term(part, fields) for part in parts)
    for term in field_terms:
        if term.key not in {"metadata.name", "metadata.namespace", *selectable}:
            key = _excerpt(term.key)
            if custom or selectable:
                raise bad_request(f"field label not supported: {key}")
            raise bad_request(f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    return Selector(terms, field_terms)


def _term(part: str, whole: str) -> Requirement:
    match = re.match(r"([^=!]*(?:![^=])*)(!=|==|=)(.*)", part, re.DOTALL)
    if match is None:
        raise bad_request(f"invalid selector: '{_excerpt(whole)}'; can't understand '{_excerpt(part)}'")
    value = re.sub(r"\\([\\,=])", r"\1", match[3])
    return Requirement(match[1], "notin" if match[2] == "!=" else "in", frozenset([value]))
