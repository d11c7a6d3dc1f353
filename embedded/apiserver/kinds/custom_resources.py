"""CustomResourceDefinitions: their validation, and the kind that each of them defines.

One rule: a definition that this server cannot serve exactly is refused with the path of the unsupported field.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crds.api_resources import Resource
from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta
from embedded.apiserver.kinds.catalog import Column, Kind, ScalePaths
from embedded.apiserver.kinds.pod_schema import FLAG, OPEN, SWITCH, TEXT, choice, fields, keep_empty, list_of, require
from embedded.apiserver.schema import cel_evaluation, json_paths, structure
from embedded.apiserver.schema.schema import SchemaNode, compile_schema
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_NAMES = fields(
    plural=TEXT, singular=TEXT, kind=TEXT, listKind=TEXT, shortNames=list_of(TEXT), categories=list_of(TEXT)
)
_COLUMN = fields(
    name=TEXT, type=TEXT, jsonPath=TEXT, description=TEXT, format=TEXT, priority={"type": "integer", "x-dropped": True}
)
_SCALE = fields(specReplicasPath=TEXT, statusReplicasPath=TEXT, labelSelectorPath=TEXT)
_VERSION = fields(
    name=TEXT,
    served=FLAG,
    storage=FLAG,
    deprecated=SWITCH,
    deprecationWarning=TEXT,
    schema=keep_empty(fields(openAPIV3Schema=keep_empty(OPEN))),
    subresources=keep_empty(
        fields(status=keep_empty(OPEN), scale=require(_SCALE, "specReplicasPath", "statusReplicasPath"))
    ),
    additionalPrinterColumns=list_of(require(_COLUMN, "name", "type", "jsonPath")),
    selectableFields=list_of(fields(jsonPath=TEXT)),
)
SPEC: dict[str, Any] = {
    "group": TEXT,
    "scope": choice("Namespaced", "Cluster"),
    "names": require(_NAMES, "plural", "kind"),
    "versions": list_of(require(_VERSION, "name", "served", "storage")),
    "conversion": {**OPEN, "default": {"strategy": "None"}},
    "preserveUnknownFields": SWITCH,
}
"""The fields of a definition's spec."""


def complete(new: Manifest, old: Manifest | None) -> None:
    """Fill in the default names of a definition, and mark it as established: this server needs no time to establish a
    definition.
    """
    spec = new.get("spec") or {}
    names = spec.get("names") or {}
    if not names.get("kind"):
        return  # `check` refuses it
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    since = (old or new)["metadata"]["creationTimestamp"]
    conditions = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    new["status"] = {
        "acceptedNames": names,
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}
            for kind, reason, message in conditions
        ],
        "storedVersions": [version.get("name") for version in spec.get("versions") or () if version.get("storage")],
    }


def check(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a definition, or of its change."""
    spec = new.get("spec") or {}
    missing = [name for name in ("group", "scope", "names", "versions") if not spec.get(name)]
    yield from (status_errors.required(f"spec.{name}") for name in missing)
    if missing:
        return
    expected = f"{spec['names']['plural']}.{spec['group']}"
    if new["metadata"]["name"] != expected:
        yield status_errors.invalid_value(
            "metadata.name", new["metadata"]["name"], 'must be spec.names.plural+"."+spec.group'
        )
    if object_meta.dns_subdomain_problem(spec["group"]) or "." not in spec["group"]:
        yield status_errors.invalid_value("spec.group", spec["group"], "should be a domain with at least one dot")
    if old is not None:
        yield from _check_change(spec, old["spec"])
    yield from _check_versions(spec["versions"])


def _check_change(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    for field in ("group", "scope"):
        if spec[field] != old[field]:
            yield status_errors.immutable(f"spec.{field}", spec[field])
    for field in ("plural", "kind"):
        if spec["names"][field] != old["names"][field]:
            yield status_errors.immutable(f"spec.names.{field}", spec["names"][field])


def _check_versions(versions: list[dict[str, Any]]) -> Iterator[Cause]:
    if sum(version["storage"] for version in versions) != 1:
        names = [version["name"] for version in versions]
        yield status_errors.invalid_value(
            "spec.versions", names, "must have exactly one version marked as storage version"
        )
    if sum(version["served"] for version in versions) > 1 or any(v["served"] and not v["storage"] for v in versions):
        detail = "the embedded cluster serves the stored version of a resource and no other"
        yield status_errors.not_allowed("spec.versions", detail)
    for index, version in enumerate(versions):
        yield from _check_schema(version, f"spec.versions[{index}].schema.openAPIV3Schema")
        yield from _check_columns(version, f"spec.versions[{index}].additionalPrinterColumns")


def _check_columns(version: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        try:
            json_paths.compile_path(column["jsonPath"])
        except ValueError as error:
            yield status_errors.invalid_value(
                f"{path}[{index}].jsonPath", column["jsonPath"], f"is an invalid path: {error}"
            )


def _check_schema(version: Mapping[str, Any], path: str) -> Iterator[Cause]:
    raw: Any = (version.get("schema") or {}).get("openAPIV3Schema")
    problems = list(structure.problems(raw, path))
    yield from problems
    if problems:
        return
    try:
        node = _root(raw)
    except ValueError as error:
        yield status_errors.invalid_value(path, "x-kubernetes-validations", str(error))
        return
    except (TypeError, AttributeError, LookupError) as error:
        yield status_errors.invalid_value(path, "schema", f"cannot be read: {error}")
        return
    for problem in cel_evaluation.find_undefined_fields(node):
        yield status_errors.invalid_value(path, "x-kubernetes-validations", f"compilation failed: {problem}")
    if version.get("selectableFields"):
        detail = "selectable fields are not supported by the embedded cluster"
        yield status_errors.not_allowed(path.rpartition(".schema")[0] + ".selectableFields", detail)


def _root(raw: Mapping[str, Any]) -> SchemaNode:
    declared_metadata = (raw.get("properties") or {}).get("metadata") or {}
    described = object_meta.SCHEMA["properties"]
    limited = {
        name: {**described[name], **limits} for name, limits in (declared_metadata.get("properties") or {}).items()
    }
    properties = {
        **(raw.get("properties") or {}),
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": {**object_meta.SCHEMA, "properties": {**described, **limited}},
    }
    return compile_schema({**raw, "properties": properties})


def kind_of(definition: Manifest) -> Kind | None:
    """Return the kind that a stored definition defines; None if it is not served."""
    spec = definition["spec"]
    version = next((version for version in spec["versions"] if version["served"]), None)
    if version is None:
        return None
    names, subresources = spec["names"], version.get("subresources") or {}
    scale = subresources.get("scale")
    namespaced = spec["scope"] == "Namespaced"
    return Kind(
        resource=Resource(spec["group"], version["name"], names["plural"], names["kind"], namespaced),
        singular=names["singular"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        schema=_root(version["schema"]["openAPIV3Schema"]),
        subresources=frozenset(subresources),
        scale=ScalePaths(*(scale.get(path, "").lstrip(".") for path in _SCALE["properties"])) if scale else None,
        columns=tuple(
            Column(each["name"], each["type"], each["jsonPath"], each.get("priority", 0), each.get("description", ""))
            for each in version.get("additionalPrinterColumns") or ()
        ),
        generation=True,
        custom=True,
    )
