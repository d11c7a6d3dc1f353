"""Validation of an object as on an API server that serves the CustomResourceDefinitions of torchq.

One rule: the schema and CEL code of the embedded cluster decides, with the definitions as they are installed.
"""

import copy
from collections.abc import Mapping
from typing import Any

from crds import generate
from embedded.apiserver.kinds import custom_resources
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.schema import cel_evaluation, pruning, schema_validation


def _kind(definition: dict[str, Any]) -> Kind:
    assert not list(custom_resources.check(definition, None))
    kind = custom_resources.kind_of(definition)
    assert kind is not None
    return kind


KINDS = {kind.resource.kind: kind for kind in map(_kind, generate.load())}


def refusals(manifest: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[str]:
    """Return each reason to refuse the object or its change; the list is empty if the object would be stored."""
    new = copy.deepcopy(dict(manifest))
    root = KINDS[new["kind"]].schema
    unknown = [f'unknown field "{field}"' for field in pruning.settle(new, root)]
    found = [f"{cause.field}: {cause.message}" for cause in schema_validation.check(new, root, "", old)]
    if unknown or found:
        return [*unknown, *found]
    changed = {name for name in new.keys() | (old or {}).keys() if old is None or new.get(name) != old.get(name)}
    return [f"{cause.field}: {cause.message}" for cause in cel_evaluation.check_object(new, old, root, changed)]
