"""The options of a request (its query, and a deletion's body), read and judged as a Kubernetes API server does.

One rule: what cannot be read is answered with 400, what is read and makes no sense with 422, both before anything else
is looked at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from crds.api_resources import Resource
from embedded.apiserver import status_errors
from embedded.apiserver.schema.json_types import go_type_name
from embedded.apiserver.status_errors import Cause, bad_request, unsupported
from embedded.apiserver.wire import label_selectors
from embedded.apiserver.wire.integers import integer

_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_LONGEST_MANAGER = 128
_BOTH_SET = "orphanDependents and deletionPropagation cannot be both set"
_NO_FORCE = "may not be specified for non-apply patch"


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list or a watch asked for, beyond its selectors."""

    watch: bool
    version: str
    match: str
    limit: int
    token: str
    initial: bool | None
    """sendInitialEvents; None: not given."""
    bookmarks: bool
    seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a write is to be done."""

    dry_run: bool = False
    validation: Literal["Strict", "Warn", "Ignore"] = "Warn"
    patch: bool = False
    """A patch's unknown fields are answered with 422 instead of 400."""
    manager: str = ""
    """Who writes, for the owners of fields."""
    applied: bool = False
    """Whether the object says already who owns its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How a deletion is to be done."""

    uid: str = ""
    version: str = ""
    grace: int | None = None
    propagation: str = ""
    dry_run: bool = False
    orphan: bool | None = None
    """The older word for the propagation; with False, what is not gone at once is answered with 202."""


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean of the query: there, and not `false` or `0`."""
    return name in query and query[name].lower() not in {"false", "0"}


def listing(query: Mapping[str, str], *, watching: bool = False) -> ListOptions:
    """The options of a list, or of a watch. BadRequest, Invalid."""
    label_selectors.parse(query.get("labelSelector", ""))  # whose problems come before those of the options
    read = ListOptions(
        watch=flag(query, "watch"),
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        limit=integer("limit", query.get("limit", "0")),
        token=query.get("continue", ""),
        initial=flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
        bookmarks=flag(query, "allowWatchBookmarks"),
        seconds=integer("timeoutSeconds", query["timeoutSeconds"]) if "timeoutSeconds" in query else None,
    )
    watching = watching or read.watch
    _refuse("ListOptions", _watch_problems(read) if watching else _list_problems(read))
    return read


def _list_problems(read: ListOptions) -> Iterable[Cause]:
    match = "resourceVersionMatch"
    if read.match:
        if not read.version:
            yield status_errors.not_allowed(match, f"{match} is forbidden unless resourceVersion is provided")
        if read.token:
            yield status_errors.not_allowed(match, f"{match} is forbidden when continue is provided")
        if read.match not in {"Exact", "NotOlderThan"}:
            yield unsupported(match, read.match, ("Exact", "NotOlderThan", ""))
        if read.match == "Exact" and read.version == "0":
            yield status_errors.not_allowed(match, f'{match} "exact" is forbidden for resourceVersion "0"')
    if read.initial is not None:
        yield status_errors.not_allowed("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _watch_problems(read: ListOptions) -> Iterable[Cause]:
    match = "resourceVersionMatch"
    if read.initial is not None and read.match != "NotOlderThan":
        yield status_errors.not_allowed(match, f"sendInitialEvents requires setting {match} to NotOlderThan")
    if read.match:
        if read.initial is None:
            yield status_errors.not_allowed(
                match, f"{match} is forbidden for watch unless sendInitialEvents is provided"
            )
        if read.match != "NotOlderThan":
            yield unsupported(match, read.match, ("NotOlderThan",))
    if read.token:
        yield status_errors.not_allowed(match, f"{match} is forbidden when continue is provided")


def write(
    query: Mapping[str, str], verb: Literal["Create", "Update", "Patch"] = "Create", *, apply: bool = False
) -> WriteOptions:
    """The options of a create, update, patch or server-side apply. Invalid."""
    patch = verb == "Patch"
    level, dry = query.get("fieldValidation", ""), _all(query, "dryRun")
    problems: list[Cause] = []
    if patch and "force" in query and not apply:
        problems.append(status_errors.not_allowed("force", _NO_FORCE))
    if apply and not query.get("fieldManager"):
        problems.append(status_errors.required("fieldManager", "is required for apply patch"))
    problems.extend(_manager_problems(query.get("fieldManager", "")))
    problems.extend(_dry_run_problems(dry))
    if level not in _VALIDATIONS:
        problems.append(unsupported("fieldValidation", level, _VALIDATIONS))
    _refuse(f"{verb}Options", problems)
    strictness = cast(Literal["Strict", "Warn", "Ignore"], level or "Warn")
    manager = query.get("fieldManager", "")
    return WriteOptions(dry_run=bool(dry), validation=strictness, patch=patch, manager=manager, applied=apply)


def _manager_problems(manager: str) -> Iterable[Cause]:
    if len(manager.encode()) > _LONGEST_MANAGER:
        yield status_errors.too_long("fieldManager", _LONGEST_MANAGER)
    for position, letter in enumerate(manager):
        if not letter.isprintable():
            detail = f"invalid character U+{ord(letter):04X} (at position {position})"
            yield status_errors.wrong("fieldManager", manager, detail)


def _dry_run_problems(values: Sequence[str]) -> Iterable[Cause]:
    if any(value != "All" for value in values):
        yield unsupported("dryRun", list(values), ("All",))


def deletion(query: Mapping[str, str], body: Any) -> DeleteOptions:
    """The options of a deletion: its body's (DeleteOptions), or, without a body, its query's. BadRequest, Invalid."""
    asked = _queried(query) if body is None else _bodied(body)
    orphan, propagation, dry = asked.get("orphanDependents"), asked.get("propagationPolicy"), asked.get("dryRun") or []
    problems: list[Cause] = []
    if orphan is not None and propagation is not None:
        problems.append(status_errors.wrong("propagationPolicy", propagation, _BOTH_SET))
    if propagation is not None and propagation not in _PROPAGATIONS:
        problems.append(unsupported("propagationPolicy", propagation, (*_PROPAGATIONS, "nil")))
    _refuse("DeleteOptions", [*problems, *_dry_run_problems(dry)])
    preconditions = asked.get("preconditions") or {}
    return DeleteOptions(
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
        grace=asked.get("gracePeriodSeconds"),
        propagation=propagation or {True: "Orphan", False: "Background", None: ""}[orphan],
        dry_run=bool(dry),
        orphan=orphan,
    )


def _queried(query: Mapping[str, str]) -> dict[str, Any]:
    asked: dict[str, Any] = {"dryRun": _all(query, "dryRun")}
    if "gracePeriodSeconds" in query:
        asked["gracePeriodSeconds"] = integer("gracePeriodSeconds", query["gracePeriodSeconds"])
    if "orphanDependents" in query:
        asked["orphanDependents"] = flag(query, "orphanDependents")
    if "propagationPolicy" in query:
        asked["propagationPolicy"] = query["propagationPolicy"]
    return asked


_FIELDS: dict[str, tuple[type, str]] = {
    "gracePeriodSeconds": (int, "int64"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "string"),
    "dryRun": (list, "[]string"),
    "preconditions": (dict, "Preconditions"),
}


def _bodied(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        mismatch = f"cannot unmarshal {go_type_name(body)} into Go value of type struct"
        raise bad_request(f"couldn't get version/kind; json parse error: json: {mismatch}")
    if body.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f'no kind "{body["kind"]}" is registered for version "{body.get("apiVersion", "")}"')
    for name, (wanted, text) in _FIELDS.items():
        value = body.get(name)
        if value is not None and type(value) is not wanted:
            raise bad_request(
                f"json: cannot unmarshal {go_type_name(value)} into Go struct field {name} of type {text}"
            )
    return body


def _all(query: Mapping[str, str], name: str) -> list[str]:
    several = getattr(query, "getall", None)  # a request's query may name a key twice
    if several is not None:
        return list(several(name, []))
    return [query[name]] if name in query else []


def _refuse(kind: str, problems: Iterable[Cause]) -> None:
    found = list(problems)
    if found:
        raise status_errors.invalid(Resource("meta.k8s.io", "v1", "", kind), "", found)
