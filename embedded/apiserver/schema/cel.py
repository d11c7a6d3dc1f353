"""Validation rules in CEL (`x-kubernetes-validations`): compiled once, run against a value and the one before it.

One rule: a rule that cannot be run here is refused when its CRD is registered, not when the first object comes.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cel
from cel import stdlib

from crds import excerpts
from embedded.apiserver.schema.json_types import json_type
from embedded.apiserver.schema.rule_cache import Memory, Read
from embedded.apiserver.status_errors import Cause, shown

_REASONS = {"FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NATIVE = _words(
    "size contains startsWith endsWith matches string int uint double bytes type timestamp duration dyn getFullYear "
    "getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes getSeconds getMilliseconds"
)
_KUBERNETES = _words(
    "min max sum charAt indexOf lastIndexOf substring replace split join lowerAscii upperAscii trim "
    "sets.contains sets.equivalent sets.intersects math.greatest math.least"
)
_TYPES = _words("int uint double bool string bytes list map null_type type sets math")
_STRINGS = re.compile(r"""r?"(?:\\.|[^"\\])*"|r?'(?:\\.|[^'\\])*'""")
_HAS = re.compile(r"(?<![\w.])has\(\s*(self|oldSelf)((?:\s*\.\s*\w+)+)\s*\)")
_BOUND = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")


def _is_sorted(items: list[Any]) -> bool:
    return all(left <= right for left, right in itertools.pairwise(items))


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [found.group() for found in re.finditer(pattern, text)]


_LONGEST_RULE, _LONGEST_REASON = 20_000, 1000
_MOST_BRACKETS = 500
"""What may open another level of a rule: the library's parser has no bound of its own but the stack's end."""
_NATIVE_MATCHES = cel.compile("text.matches(pattern)")
_CACHED_MATCHES = "cachedMatches"


@functools.lru_cache(maxsize=4096)
def matches(text: str, pattern: str) -> bool:
    """Whether a pattern is found in a text, in time that grows with the text alone."""
    # The library compiles a pattern at every use, which costs a hundred times the match itself.
    return bool(_NATIVE_MATCHES.execute({"text": text, "pattern": pattern}))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: stdlib.STDLIB_FUNCTIONS[name] for name in _KUBERNETES},
    "bool": stdlib.STDLIB_FUNCTIONS["bool"],
    "isSorted": _is_sorted,
    "find": _find,
    "findAll": _find_all,
    _CACHED_MATCHES: matches,
}
"""What a Kubernetes API server adds to CEL, as far as this one knows it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule."""

    program: Any
    source: str
    message: str
    message_program: Any | None
    field_path: str
    reason: str
    transition: bool
    """Whether it compares with the value before; such a rule runs on updates only."""
    chains: tuple[tuple[str, ...], ...]
    """The field paths it reads from `self` and `oldSelf`; an empty one where it takes them whole."""
    reads: tuple[Read, ...] = ()
    """The same as `answers` wants it."""


Needs = dict[str, "Needs"] | None
"""Fields that are read, by name; None: everything."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rules that are run together, and what they read together: nothing else is converted for them, because the
    conversion costs more than the rules."""

    rules: tuple[Rule, ...]
    needs: Needs
    memory: Memory = field(default_factory=Memory, compare=False)


def plan(rules: Iterable[Rule]) -> Plan:
    """Bring rules together."""
    chosen = tuple(rules)
    chains = [chain for rule in chosen for chain in rule.chains]
    needs: dict[str, Needs] = {}
    for chain in chains:
        _need(needs, chain)
    return Plan(chosen, needs if all(chains) else None)


def _need(needs: dict[str, Needs], chain: tuple[str, ...]) -> None:
    if len(chain) == 1:
        needs[chain[0]] = None
    elif chain:
        deeper = needs.setdefault(chain[0], {})
        if deeper is not None:  # else all of it is needed already
            _need(deeper, chain[1:])


def compile_rule(raw: Mapping[str, Any]) -> Rule:
    """Compile one entry of `x-kubernetes-validations`. ValueError says what this server cannot run."""
    source = raw.get("rule")
    if not isinstance(source, str) or not source.strip():
        raise ValueError("rule: Required value")
    if raw.get("optionalOldSelf"):
        raise ValueError(f"optionalOldSelf is not supported by the embedded cluster, in rule {source!r}")
    reason = raw.get("reason", "FieldValueInvalid")
    if reason not in _REASONS:
        raise ValueError(f"reason: Unsupported value: {reason!r}")
    program = _compile(source)
    worded = raw.get("messageExpression")
    return Rule(
        program=program,
        source=source,
        message=raw.get("message", ""),
        message_program=_compile(worded) if worded else None,
        field_path=raw.get("fieldPath", ""),
        reason=reason,
        transition="oldSelf" in program.variables(),
        chains=tuple(_chains(source + " " + (worded or ""))),
        reads=tuple(sorted(set(_reads(source)))),
    )


def _compile(source: str) -> Any:
    plain = _STRINGS.sub('""', source)
    if len(source) > _LONGEST_RULE or sum(map(plain.count, "([{?!-")) > _MOST_BRACKETS:
        raise ValueError("compilation failed: the rule is too long")
    try:
        program = cel.compile(_faster(source))
    except ValueError as error:
        raise ValueError(f"compilation failed: {excerpts.excerpt(str(error), _LONGEST_REASON)}") from error
    strange = set(program.variables()) - {"self", "oldSelf"} - set(_BOUND.findall(plain)) - _TYPES
    if strange:
        raise ValueError(f"compilation failed: undeclared reference to {', '.join(sorted(strange))} in rule {source!r}")
    unknown = {name for name in program.functions() if name[0].isalpha()} - _NATIVE - FUNCTIONS.keys()
    if unknown:
        raise ValueError(
            f"compilation failed: the embedded cluster does not know the function {', '.join(sorted(unknown))}"
            f" in rule {source!r}"
        )
    return program


def _faster(source: str) -> str:
    """The same expression with `matches` answered from a cache; what stands in quotes is left alone."""
    quoted = _STRINGS.findall(source)
    pieces = [re.sub(r"\.\s*matches\s*\(", f".{_CACHED_MATCHES}(", piece) for piece in _STRINGS.split(source)]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(pieces, quoted, fillvalue="")))


def _chains(source: str) -> list[tuple[str, ...]]:
    plain = _STRINGS.sub('""', source)
    found = re.findall(r"(?<![\w.])(?:self|oldSelf)\b((?:\s*\.\s*\w+)*)(\s*\()?", plain)
    paths = [(tuple("".join(path.split()).split(".")[1:]), bool(called)) for path, called in found]
    return [path[:-1] if called else path for path, called in paths]


def _reads(source: str) -> Iterator[Read]:
    """What a rule can see of the value and of the one before it: of a path in `has()` only whether it is there."""
    plain = _STRINGS.sub('""', source)
    for root, path in _HAS.findall(plain):
        yield Read(root == "oldSelf", tuple("".join(path.split()).split(".")[1:]), shape=True)
    rest = _HAS.sub("true", plain)
    for root in ("self", "oldSelf"):
        other = re.sub(rf"(?<![\w.]){'self' if root == 'oldSelf' else 'oldSelf'}\b", "_", rest)
        for chain in _chains(other):
            yield Read(root == "oldSelf", chain, shape=False)


def context(value: Any, before: Any = None) -> Any:
    """What the rules of one value see; to be shared between them, the conversion is most of the cost."""
    variables = {"self": value} if before is None else {"self": value, "oldSelf": before}
    return cel.Context(variables=variables, functions=FUNCTIONS)


def run(rule: Rule, seen: Any, path: str, value: Any) -> Cause | None:
    """Run a rule on what `context` made of a value; the cause if it does not hold."""
    field = (path + rule.field_path).lstrip(".") or "<nil>"
    try:
        held = rule.program.execute(seen)
    except Exception as error:  # the library raises built-in errors of many kinds
        message = f"{_explain(error)} evaluating rule: {rule.message or rule.source}"
        return Cause(field, f'Invalid value: "{json_type(value)}": {message}')
    return None if held is True else _cause(rule, field, value, _message(rule, seen))


def _explain(error: Exception) -> str:
    return f"no such key: {error.args[0]}" if isinstance(error, KeyError) and error.args else str(error).split(":")[0]


def _message(rule: Rule, seen: Any) -> str:
    if rule.message_program is not None:
        try:
            text = rule.message_program.execute(seen)
        except Exception:  # as a Kubernetes API server: fall back to the fixed message
            text = ""
        if isinstance(text, str) and text.strip():
            return text
    return rule.message or f"failed rule: {rule.source}"


def _cause(rule: Rule, field: str, value: Any, message: str) -> Cause:
    # Objects and lists would flood the message: they are not shown.
    value_shown = "" if isinstance(value, dict | list) else f" {shown(value)}"
    match rule.reason:
        case "FieldValueForbidden":
            return Cause(field, f"Forbidden: {message}", rule.reason)
        case "FieldValueRequired":
            return Cause(field, f"Required value: {message}", rule.reason)
        case "FieldValueDuplicate":
            return Cause(field, f"Duplicate value{':' if value_shown else ''}{value_shown}", rule.reason)
        case _:
            return Cause(field, f"Invalid value:{value_shown}{':' if value_shown else ''} {message}", rule.reason)
