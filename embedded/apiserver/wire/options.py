"""The options of a request, from its query and from the body of a deletion, validated as a Kubernetes API server does.

One rule: options that cannot be parsed are answered with 400, invalid options with 422, both before any other check.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from crds.api_resources import Resource
from embedded.apiserver import status_errors
from embedded.apiserver.schema.json_types import go_type_name
from embedded.apiserver.status_errors import Cause, bad_request, not_supported
from embedded.apiserver.wire import selectors
from embedded.apiserver.wire.go_integers import query_integer

_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_LONGEST_MANAGER = 128
_BOTH_SET = "orphanDependents and deletionPropagation cannot be both set"
_NO_FORCE = "may not be specified for non-apply patch"


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a list or a watch, beyond its selectors."""

    watch: bool
    version: str
    match: str
    limit: int
    token: str
    initial: bool | None
    """The parameter sendInitialEvents; None if the query lacks it."""
    bookmarks: bool
    seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a create, update, patch or server-side apply."""

    dry_run: bool = False
    validation: Literal["Strict", "Warn", "Ignore"] = "Warn"
    patch: bool = False
    """Whether the write is a patch, whose unknown fields are answered with 422 instead of 400."""
    manager: str = ""
    """The field manager, which comes to own the fields."""
    apply: bool = False
    """Whether the write is a server-side apply, whose object already has its managed fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The options of a deletion."""

    uid: str = ""
    version: str = ""
    grace: int | None = None
    propagation: str = ""
    dry_run: bool = False
    orphan: bool | None = None
    """The older form of the propagation. With False, a deletion that has to wait is answered with 202."""


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean of the query: true if it is present and not `false` or `0`."""
    return name in query and query[name].lower() not in {"false", "0"}


def list_options(query: Mapping[str, str], *, watching: bool = False) -> ListOptions:
    """Return the options of a list, or of a watch. Raise StatusError (BadRequest, Invalid) if an option is wrong."""
    selectors.parse_labels(query.get("labelSelector", ""))  # errors of the selector come before those of the options
    read = ListOptions(
        watch=flag(query, "watch"),
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        limit=query_integer("limit", query.get("limit", "0")),
        token=query.get("continue", ""),
        initial=flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
        bookmarks=flag(query, "allowWatchBookmarks"),
        seconds=query_integer("timeoutSeconds", query["timeoutSeconds"]) if "timeoutSeconds" in query else None,
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
            yield not_supported(match, read.match, ("Exact", "NotOlderThan", ""))
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
            yield not_supported(match, read.match, ("NotOlderThan",))
    if read.token:
        yield status_errors.not_allowed(match, f"{match} is forbidden when continue is provided")


def write_options(
    query: Mapping[str, str], verb: Literal["Create", "Update", "Patch"] = "Create", *, apply: bool = False
) -> WriteOptions:
    """Return the options of a create, update, patch or server-side apply.

    Raise StatusError (Invalid) if an option is wrong.
    """
    patch = verb == "Patch"
    level, dry = query.get("fieldValidation", ""), _all_values(query, "dryRun")
    problems: list[Cause] = []
    if patch and "force" in query and not apply:
        problems.append(status_errors.not_allowed("force", _NO_FORCE))
    if apply and not query.get("fieldManager"):
        problems.append(status_errors.required("fieldManager", "is required for apply patch"))
    problems.extend(_manager_problems(query.get("fieldManager", "")))
    problems.extend(_dry_run_problems(dry))
    if level not in _VALIDATIONS:
        problems.append(not_supported("fieldValidation", level, _VALIDATIONS))
    _refuse(f"{verb}Options", problems)
    strictness = cast(Literal["Strict", "Warn", "Ignore"], level or "Warn")
    manager = query.get("fieldManager", "")
    return WriteOptions(dry_run=bool(dry), validation=strictness, patch=patch, manager=manager, apply=apply)


def _manager_problems(manager: str) -> Iterable[Cause]:
    if len(manager.encode()) > _LONGEST_MANAGER:
        yield status_errors.too_long("fieldManager", _LONGEST_MANAGER)
    for position, letter in enumerate(manager):
        if not letter.isprintable():
            detail = f"invalid character U+{ord(letter):04X} (at position {position})"
            yield status_errors.invalid_value("fieldManager", manager, detail)


def _dry_run_problems(values: Sequence[str]) -> Iterable[Cause]:
    if any(value != "All" for value in values):
        yield not_supported("dryRun", list(values), ("All",))


def delete_options(query: Mapping[str, str], body: Any) -> DeleteOptions:
    """Return the options of a deletion, from its body (DeleteOptions), or without a body from its query.

    Raise StatusError (BadRequest, Invalid) if an option is wrong.
    """
    parameters = _query_parameters(query) if body is None else _body_parameters(body)
    orphan, propagation = parameters.get("orphanDependents"), parameters.get("propagationPolicy")
    dry = parameters.get("dryRun") or []
    problems: list[Cause] = []
    if orphan is not None and propagation is not None:
        problems.append(status_errors.invalid_value("propagationPolicy", propagation, _BOTH_SET))
    if propagation is not None and propagation not in _PROPAGATIONS:
        problems.append(not_supported("propagationPolicy", propagation, (*_PROPAGATIONS, "nil")))
    _refuse("DeleteOptions", [*problems, *_dry_run_problems(dry)])
    preconditions = parameters.get("preconditions") or {}
    return DeleteOptions(
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
        grace=parameters.get("gracePeriodSeconds"),
        propagation=propagation or {True: "Orphan", False: "Background", None: ""}[orphan],
        dry_run=bool(dry),
        orphan=orphan,
    )


def _query_parameters(query: Mapping[str, str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"dryRun": _all_values(query, "dryRun")}
    if "gracePeriodSeconds" in query:
        parameters["gracePeriodSeconds"] = query_integer("gracePeriodSeconds", query["gracePeriodSeconds"])
    if "orphanDependents" in query:
        parameters["orphanDependents"] = flag(query, "orphanDependents")
    if "propagationPolicy" in query:
        parameters["propagationPolicy"] = query["propagationPolicy"]
    return parameters


_FIELDS: dict[str, tuple[type, str]] = {
    "gracePeriodSeconds": (int, "int64"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "string"),
    "dryRun": (list, "[]string"),
    "preconditions": (dict, "Preconditions"),
}


def _body_parameters(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        mismatch = f"cannot unmarshal {go_type_name(body)} into Go value of type struct"
        raise bad_request(f"couldn't get version/kind; json parse error: json: {mismatch}")
    if body.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f'no kind "{body["kind"]}" is registered for version "{body.get("apiVersion", "")}"')
    for name, (expected, text) in _FIELDS.items():
        value = body.get(name)
        if value is not None and type(value) is not expected:
            raise bad_request(
                f"json: cannot unmarshal {go_type_name(value)} into Go struct field {name} of type {text}"
            )
    return body


def _all_values(query: Mapping[str, str], name: str) -> list[str]:
    several = getattr(query, "getall", None)  # a request's query may name a key twice
    if several is not None:
        return list(several(name, []))
    return [query[name]] if name in query else []


def _refuse(kind: str, problems: Iterable[Cause]) -> None:
    causes = list(problems)
    if causes:
        raise status_errors.invalid(Resource("meta.k8s.io", "v1", "", kind), "", causes)
