"""Objects against the schemas of Kubernetes, as strictly as an API server with field validation.

One rule: this is the only door to `kubernetes_validate`. A kind of another project has no schema here.
"""

import functools
import json
import re
from collections.abc import Iterable
from typing import Any

import kubernetes_validate
from kubernetes_validate import utils

from deploy.checks.objects import Manifest, describe

OLDEST = "1.30"
"""The first version that takes `optionalOldSelf`, which the rules of TorchJob use; Chart.yaml has it, too."""
FOREIGN = "monitoring.coreos.com/v1"
TYPES = "kubernetes-json-schema/v{}.0-local-strict/_definitions.json"
CONSTRAINTS = ("type", "properties", "required", "additionalProperties", "items", "enum", "oneOf", "$ref")
# The library would read a file of some MiB for every object.
utils.schema_contents = functools.cache(utils.schema_contents)


def versions() -> list[str]:
    """Return the versions of Kubernetes that the chart supports and whose schemas are installed."""
    found = dict.fromkeys(utils.major_minor(each) for each in utils.all_versions())
    return [each for each in found if _number(each) >= _number(OLDEST)]


def definitions(names: Iterable[str], version: str) -> dict[str, Any]:
    """Return the schemas of types of Kubernetes, and of all types in them, by the last part of their names.

    No type takes unknown fields. The schemas refer to each other as in a JSON schema that has them as its
    `definitions`.
    """
    every = utils.schema_contents(TYPES.format(version), version)["$defs"]
    found: dict[str, Any] = {}
    missing = list(names)
    while missing:
        name = missing.pop()
        short = name.rpartition(".")[2]
        if short not in found:
            found[short] = _without_comments(every[name])
            missing += re.findall(r"\$defs/([\w.]+)", json.dumps(every[name]))
    text = re.sub(r'"[^"]*#/\$defs/[\w.]*?(\w+)"', r'"#/definitions/\1"', json.dumps(found))
    return dict(sorted(json.loads(text).items()))


def _without_comments(schema: Any) -> Any:
    """Return a schema without the parts that are for people or for other programs. A field may be called `description`,
    too.
    """
    match schema:
        case dict():
            kept = {key: value for key, value in schema.items() if key in CONSTRAINTS}
            fields = {name: _without_comments(each) for name, each in kept.get("properties", {}).items()}
            return {key: fields if key == "properties" else _without_comments(value) for key, value in kept.items()}
        case list():
            return [_without_comments(each) for each in schema]
    return schema


def problems(documents: Iterable[Manifest], version: str) -> list[str]:
    """Return the objects that an API server of this version would refuse."""
    found = (_problem(json.dumps(each), version) for each in documents if each["apiVersion"] != FOREIGN)
    return [each for each in found if each]


@functools.cache
def _problem(text: str, version: str) -> str:
    document = json.loads(text)
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        path = ".".join(str(part) for part in getattr(error, "path", ()))
        return f"{describe(document)} ({version}): {path}: {error.message}"
    return ""


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
