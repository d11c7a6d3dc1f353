"""A small custom resource with one example of each feature that the contract suite tests."""

from typing import Any

from crds.api_resources import Resource

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")

SPEC_RULES = [
    {
        "rule": "!has(self.limit) || self.size <= self.limit",
        "message": "size must not exceed limit",
        "fieldPath": ".size",
    },
    {
        "rule": "!has(oldSelf.colour) || (has(self.colour) && self.colour == oldSelf.colour)",
        "message": "colour is final",
    },
    {
        "rule": "!has(oldSelf.sealed) || (has(self.sealed) && self.sealed == oldSelf.sealed)",
        "message": "sealed is final",
    },
]
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "x-kubernetes-validations": SPEC_RULES,
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "limit": {"type": "integer"},
        "colour": {"type": "string", "enum": ["red", "green", "blue"]},
        "mode": {"type": "string", "default": "plain", "maxLength": 8},
        "code": {"type": "string", "pattern": "^[A-Z]+$"},
        "port": {"x-kubernetes-int-or-string": True},
        "when": {"type": "string", "format": "date-time"},
        "ratio": {"type": "number"},
        "sealed": {"type": "object", "x-kubernetes-preserve-unknown-fields": True,
                   "properties": {"known": {"type": "string"}}},
        "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "names": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 10},
                  "x-kubernetes-list-type": "set"},
        "parts": {"type": "object", "maxProperties": 4, "additionalProperties": {
            "type": "object",
            "properties": {"count": {"type": "integer", "minimum": 1, "default": 1}, "note": {"type": "string"}},
        }},
    },
}  # fmt: skip
STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {"phase": {"type": "string"}, "ready": {"type": "integer"}, "selector": {"type": "string"}},
}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.ready",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}


def widget(name: str = "w", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a widget, of size 1 unless `spec` sets another size."""
    metadata: dict[str, Any] = {"name": name} if name else {}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1, **spec}}


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """Return a pod of one container."""
    container = {"name": "main", "image": "none", "command": ["true"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}
