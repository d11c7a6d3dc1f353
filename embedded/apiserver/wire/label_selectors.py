"""Label selectors as text: `app=a,tier in (x,y),!old`, by the grammar of k8s.io/apimachinery.

One rule: what cannot be understood is refused in that grammar's words, never ignored: a selector that selects too much
deletes too much.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embedded.apiserver.kinds import metadata
from embedded.apiserver.status_errors import bad_request, shown

_TOKEN = re.compile(r"[ \t\r\n]*(?:(?P<special>==|!=|[=<>!(),])|(?P<word>[^ \t\r\n=!(),<>]+)|(?P<end>$))")
_SIGNS = ("in", "notin", "=", "==", "!=", "gt", "lt")
_END = ("end", "")
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


def parse(text: str) -> tuple[Requirement, ...]:
    """The terms of a selector. BadRequest."""
    return _Parser(text).terms()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [(found.lastgroup or "", found[found.lastgroup or 0]) for found in _TOKEN.finditer(text)]
        if not self._tokens or self._tokens[-1] != _END:
            self._tokens.append(_END)
        self._next = 0

    def terms(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        while self._peek() != _END:
            if not self._begins():
                raise _unexpected(self._peek(), "!, identifier, or 'end of string'")
            try:
                found.append(self._term())
            except _Wrong as error:
                raise bad_request(f"unable to parse requirement: {error}") from None
            if len(found) > _MOST_TERMS:
                raise bad_request(f"a selector has at most {_MOST_TERMS} requirements")
            self._separate()
        return tuple(found)

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
                raise bad_request(f"found '{self._peek()[1][:_SHOWN]}', expected: identifier after ','")
        elif token != _END:
            raise _unexpected(token, "',' or 'end of string'")

    def _term(self) -> Requirement:
        absent = self._peek()[1] == "!"
        if absent:
            self._take()
        kind, key = self._take()
        if kind != "word":
            raise _Wrong(f"found '{key}', expected: identifier")
        _check(metadata.qualified_problems(key), key, "<nil>")
        if absent and (self._peek() == _END or self._peek()[1] == ","):
            return Requirement(key, "absent")
        if self._peek() == _END or self._peek()[1] == ",":
            return Requirement(key, "exists")
        if absent:  # as there: `!a=b` is no negation
            return Requirement(key, "absent") if self._peek() == _END else self._compared(key)
        return self._compared(key)

    def _compared(self, key: str) -> Requirement:
        _, sign = self._take()
        if sign in {"in", "notin"}:
            return _made(key, sign, self._set())
        if sign not in {"=", "==", "!=", "<", ">"}:
            raise _Wrong(f"found '{sign[:_SHOWN]}', expected: {', '.join(_SIGNS)}")
        return _made(key, {"!=": "notin", "<": "<", ">": ">"}.get(sign, "in"), [self._value()])

    def _value(self) -> str:
        if self._peek() == _END or self._peek()[1] == ",":
            return ""
        kind, word = self._take()
        if kind != "word":
            raise _Wrong(f"found '{word}', expected: identifier")
        return word

    def _set(self) -> list[str]:
        word = self._take()[1]
        if word != "(":
            raise _Wrong(f"found '{word[:_SHOWN]}' expected: '('")
        values = []
        while True:
            kind, word = self._peek()
            values.append(word if kind == "word" else "")
            if kind == "word":
                self._take()
            word = self._take()[1]
            if word == ")":
                return values
            if word != ",":
                raise _Wrong(f"found '{word[:_SHOWN]}', expected: ',' or ')'")


class _Wrong(Exception):
    """A term is not understood."""


def _unexpected(token: tuple[str, str], expected: str) -> Exception:
    return bad_request(f"found '{token[1][:_SHOWN]}', expected: {expected}")


def _made(key: str, sign: str, values: list[str]) -> Requirement:
    for index, value in enumerate(sorted(set(values))):
        if sign in {"<", ">"} and not _is_number(value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _Wrong(f"values[{index}]: Invalid value: {shown(value[:_SHOWN])}: {detail}")
        _check(metadata.value_problems(value), value, f"values[{index}][{key[:_SHOWN]}]")
    return Requirement(key, sign, frozenset(values))


def _check(problems: Sequence[str], text: str, where: str) -> None:
    if problems:
        raise _Wrong(f"{where}: Invalid value: {shown(text[:_SHOWN])}: {'; '.join(problems)}")


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?[0-9]{1,18}", text))
