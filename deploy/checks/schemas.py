"""Objects against the schemas of Kubernetes, as strictly as an API server with field validation.

One rule: this is the only door to `kubernetes_validate`. A kind of another project has no schema here.
"""

import functools
import json
from collections.abc import Iterable

import kubernetes_validate
from kubernetes_validate import utils

from deploy.checks.objects import Manifest, describe

OLDEST = "1.30"
"""The first version that takes `optionalOldSelf`, which the rules of TorchJob use; Chart.yaml has it, too."""
FOREIGN = "monitoring.coreos.com/v1"
# It reads a file of some MiB for every object.
utils.schema_contents = functools.cache(utils.schema_contents)


def versions() -> list[str]:
    """Return the versions of Kubernetes that the chart supports and whose schemas are installed."""
    found = dict.fromkeys(utils.major_minor(each) for each in utils.all_versions())
    return [each for each in found if _number(each) >= _number(OLDEST)]


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
