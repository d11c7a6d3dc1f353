"""Validation rules in CEL (`x-kubernetes-validations`): compiled once, and run against a value and its old value.

One rule: a rule that this server cannot run is refused when its CRD is registered, not when the first object arrives.
"""

import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cel
import orjson
from cel import stdlib

from crds import excerpts
from embedded.apiserver.schema.json_types import json_type
from embedded.apiserver.status_errors import Cause, bad_request, format_value

MOST = 2_000
"""The results cached per node of a schema, some 200 kilobytes. A full cache is emptied."""

Chain = tuple[str, ...]
CacheKey = bytes


class FieldRead(NamedTuple):
    """A field that a rule reads."""

    before: bool
    """Whether the rule reads the field of the old value (`oldSelf`)."""
    chain: Chain
    """The path of the field; empty for the whole value."""
    shape: bool
    """Whether the rule only tests that the field exists."""


_REASONS = {"FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"}


def _name_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NATIVE = _name_set(
    "size contains startsWith endsWith matches string int uint double bytes type timestamp duration dyn getFullYear "
    "getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes getSeconds getMilliseconds"
)
_KUBERNETES = _name_set(
    "min max sum charAt indexOf lastIndexOf substring replace split join lowerAscii upperAscii trim "
    "sets.contains sets.equivalent sets.intersects math.greatest math.least"
)
_TYPES = _name_set("int uint double bool string bytes list map null_type type sets math")
_STRINGS = re.compile(r"""r?"(?:\\.|[^"\\])*"|r?'(?:\\.|[^'\\])*'""")
_HAS = re.compile(r"(?<![\w.])has\(\s*(self|oldSelf)((?:\s*\.\s*\w+)+)\s*\)")
_BOUND = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")


def _is_sorted(items: list[Any]) -> bool:
    return all(item <= next_item for item, next_item in itertools.pairwise(items))


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match.group() if match else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [match.group() for match in re.finditer(pattern, text)]


_HAS_VALUE = re.compile(r"(?<![\w.])oldSelf\s*\.\s*hasValue\s*\(\s*\)")
_VALUE = re.compile(r"(?<![\w.])oldSelf\s*\.\s*value\s*\(\s*\)")
_HAS_OLD = "has_old_self"
"""The variable that says in a rule with optionalOldSelf whether there is an old value."""
_VARIABLES = frozenset(("self", "oldSelf"))
_OLD_EXISTS = FieldRead(before=True, chain=(), shape=True)
_LONGEST_RULE, _LONGEST_REASON = 20_000, 1000
_MOST_BRACKETS = 600
"""Maximum number of characters that may open a nested level of a rule.

The parser of the library has no such limit, and overflows the stack.
"""
_NATIVE_MATCHES = cel.compile("text.matches(pattern)")
_CACHED_MATCHES = "cachedMatches"


@functools.lru_cache(maxsize=4096)
def matches(text: str, pattern: str) -> bool:
    """Return whether a text contains a match of a pattern; the time is linear in the length of the text."""
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
"""The functions that a Kubernetes API server adds to CEL, as far as this server supports them."""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A compiled rule."""

    program: Any
    source: str
    message: str
    message_program: Any | None
    field_path: str
    reason: str
    is_transition: bool
    """Whether the rule reads the old value."""
    on_create: bool
    """Whether the rule also runs where there is no old value."""
    field_paths: tuple[tuple[str, ...], ...]
    """The field paths that the rule reads from `self` and `oldSelf`; an empty path stands for the whole value."""
    reads: tuple[FieldRead, ...] = ()
    """The same paths in the form that the cache needs."""


class RuleCache:
    """The rules at one node of a schema that hold: the same rule is not run again for the same values.

    A rule is a pure function of the fields it reads, so a result is cached under exactly these fields. Only the result
    "it holds" is cached: a rule that does not hold has to run again, to produce its message. Most writes change only
    the status, which most rules do not read, and most objects come from a few templates: nine of ten results are here.
    """

    def __init__(self) -> None:
        self._keys: set[CacheKey] = set()

    def missing(self, rules: Iterable[CompiledRule], value: Any, before: Any) -> list[tuple[CompiledRule, CacheKey]]:
        """Return the rules that have to run on a value and its old value, each with its cache key."""
        read: dict[FieldRead, bytes] = {}
        candidates = [(rule, cache_key(rule, value, before, read)) for rule in rules]
        return [(rule, key) for rule, key in candidates if key not in self._keys]

    def add(self, key: CacheKey) -> None:
        """Record the cache key of a rule that holds."""
        if len(self._keys) >= MOST:
            self._keys.clear()
        self._keys.add(key)


def cache_key(rule: CompiledRule, value: Any, before: Any, read: dict[FieldRead, bytes]) -> CacheKey:
    """Return a digest of the rule and of all values that it reads; `read` caches the values for the next rules."""
    digest = hashlib.blake2b(rule.source.encode(), digest_size=16)
    for each in rule.reads:
        if each not in read:
            read[each] = _value_at(before if each.before else value, each)
        digest.update(b"%d:" % len(read[each]))
        digest.update(read[each])
    return digest.digest()


def _value_at(value: Any, read: FieldRead) -> bytes:
    """Return the value at a path as bytes; for a missing field, `-` and the number of steps that exist."""
    for depth, step in enumerate(read.chain):
        if not isinstance(value, Mapping) or step not in value:
            return b"-%d" % depth
        value = value[step]
    if read.shape:
        return b"+" if value is not None else b"0"
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise bad_request("the object is nested too deeply") from error


Needs = dict[str, "Needs"] | None
"""The fields that rules read, by name; None stands for all fields."""


@dataclass(frozen=True, slots=True)
class RulePlan:
    """Rules that run together, and the fields that they read.

    Only these fields are converted for CEL, because the conversion costs more than the rules.
    """

    rules: tuple[CompiledRule, ...]
    needs: Needs
    memory: RuleCache = field(default_factory=RuleCache, compare=False)


def plan(rules: Iterable[CompiledRule]) -> RulePlan:
    """Return a plan for rules that run together."""
    all_rules = tuple(rules)
    chains = [chain for rule in all_rules for chain in rule.field_paths]
    needs: dict[str, Needs] = {}
    for chain in chains:
        _need(needs, chain)
    return RulePlan(all_rules, needs if all(chains) else None)


def _need(needs: dict[str, Needs], chain: tuple[str, ...]) -> None:
    if len(chain) == 1:
        needs[chain[0]] = None
    elif chain:
        deeper = needs.setdefault(chain[0], {})
        if deeper is not None:  # None: the whole field is needed already
            _need(deeper, chain[1:])


def compile_rule(raw: Mapping[str, Any]) -> CompiledRule:
    """Compile one entry of `x-kubernetes-validations`.

    Raise ValueError with the part that this server does not support.
    """
    source = raw.get("rule")
    if not isinstance(source, str) or not source.strip():
        raise ValueError("rule: Required value")
    optional = bool(raw.get("optionalOldSelf"))
    worded = raw.get("messageExpression")
    if optional:
        source, worded = _without_optional(source), _without_optional(worded) if worded else worded
    reason = raw.get("reason", "FieldValueInvalid")
    if reason not in _REASONS:
        raise ValueError(f"reason: Unsupported value: {reason!r}")
    variables = _VARIABLES | {_HAS_OLD} if optional else _VARIABLES
    program = _compile(source, variables)
    is_transition = not {"oldSelf", _HAS_OLD}.isdisjoint(program.variables())
    if optional and not is_transition:
        raise ValueError(f"optionalOldSelf: may not be set if oldSelf is not used in rule {source!r}")
    return CompiledRule(
        program=program,
        source=source,
        message=raw.get("message", ""),
        message_program=_compile(worded, variables) if worded else None,
        field_path=raw.get("fieldPath", ""),
        reason=reason,
        is_transition=is_transition,
        on_create=optional or not is_transition,
        field_paths=tuple(_chains(source + " " + (worded or ""))),
        reads=tuple(sorted({*_reads(source), *([_OLD_EXISTS] if optional else [])})),
    )


def _without_optional(source: str) -> str:
    """Return an expression that reads `oldSelf` directly, and _HAS_OLD to learn whether there is an old value.

    The library has no optional values. Other functions of an optional value remain and are refused as unknown.
    """
    return _outside_strings(source, lambda piece: _VALUE.sub("oldSelf", _HAS_VALUE.sub(_HAS_OLD, piece)))


def _compile(source: str, variables: frozenset[str] = _VARIABLES) -> Any:
    plain = _STRINGS.sub('""', source)
    if len(source) > _LONGEST_RULE or sum(map(plain.count, "([{?!-")) > _MOST_BRACKETS:
        raise ValueError("compilation failed: the rule is too long or nested too deeply")
    try:
        program = cel.compile(_faster(source))
    except ValueError as error:
        raise ValueError(f"compilation failed: {excerpts.excerpt(str(error), _LONGEST_REASON)}") from error
    strange = set(program.variables()) - variables - set(_BOUND.findall(plain)) - _TYPES
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
    """Return the expression with `matches` replaced by a cached function."""
    return _outside_strings(source, lambda piece: re.sub(r"\.\s*matches\s*\(", f".{_CACHED_MATCHES}(", piece))


def _outside_strings(source: str, change: Callable[[str], str]) -> str:
    """Return an expression with its parts between string literals changed."""
    quoted = _STRINGS.findall(source)
    pieces = [change(piece) for piece in _STRINGS.split(source)]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(pieces, quoted, fillvalue="")))


def _chains(source: str) -> list[tuple[str, ...]]:
    plain = _STRINGS.sub('""', source)
    matches = re.findall(r"(?<![\w.])(?:self|oldSelf)\b((?:\s*\.\s*\w+)*)(\s*\()?", plain)
    paths = [(tuple("".join(path.split()).split(".")[1:]), bool(call)) for path, call in matches]
    return [path[:-1] if is_call else path for path, is_call in paths]


def _reads(source: str) -> Iterator[FieldRead]:
    """Yield the fields that a rule reads from the value and the old value; `has()` only tests that a field exists."""
    plain = _STRINGS.sub('""', source)
    for root, path in _HAS.findall(plain):
        yield FieldRead(root == "oldSelf", tuple("".join(path.split()).split(".")[1:]), shape=True)
    rest = _HAS.sub("true", plain)
    for root in ("self", "oldSelf"):
        other = re.sub(rf"(?<![\w.]){'self' if root == 'oldSelf' else 'oldSelf'}\b", "_", rest)
        for chain in _chains(other):
            yield FieldRead(root == "oldSelf", chain, shape=False)


def context(value: Any, before: Any = None) -> Any:
    """Return the variables of the rules of one value; the rules share them, because the conversion is expensive."""
    variables = {"self": value, _HAS_OLD: before is not None} | ({} if before is None else {"oldSelf": before})
    return cel.Context(variables=variables, functions=FUNCTIONS)


def run(rule: CompiledRule, context: Any, path: str, value: Any) -> Cause | None:
    """Run a rule in a context from `context`; return the cause if the rule is false."""
    field = (path + rule.field_path).lstrip(".") or "<nil>"
    try:
        result = rule.program.execute(context)
    except Exception as error:  # the library raises built-in errors of many kinds
        message = f"{_explain(error)} evaluating rule: {rule.message or rule.source}"
        return Cause(field, f'Invalid value: "{json_type(value)}": {message}')
    return None if result is True else _cause(rule, field, value, _message(rule, context))


def _explain(error: Exception) -> str:
    return f"no such key: {error.args[0]}" if isinstance(error, KeyError) and error.args else str(error).split(":")[0]


def _message(rule: CompiledRule, context: Any) -> str:
    if rule.message_program is not None:
        try:
            text = rule.message_program.execute(context)
        except Exception:  # a Kubernetes API server falls back to the fixed message, too
            text = ""
        if isinstance(text, str) and text.strip():
            return text
    return rule.message or f"failed rule: {rule.source}"


def _cause(rule: CompiledRule, field: str, value: Any, message: str) -> Cause:
    # Objects and lists are too long for a message, so they are left out.
    value_shown = "" if isinstance(value, dict | list) else f" {format_value(value)}"
    match rule.reason:
        case "FieldValueForbidden":
            return Cause(field, f"Forbidden: {message}", rule.reason)
        case "FieldValueRequired":
            return Cause(field, f"Required value: {message}", rule.reason)
        case "FieldValueDuplicate":
            return Cause(field, f"Duplicate value{':' if value_shown else ''}{value_shown}", rule.reason)
        case _:
            return Cause(field, f"Invalid value:{value_shown}{':' if value_shown else ''} {message}", rule.reason)
