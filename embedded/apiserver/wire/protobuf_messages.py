"""The field numbers of Kubernetes' protobuf encoding, for the kinds that kubectl creates itself.

One rule: this is a table. A field that it lacks is skipped, as protobuf decoders do with unknown fields.
"""

from dataclasses import dataclass
from typing import Any, Literal

Type = str | dict[int, Any]
"""The type of a field: `text`, `number`, `flag`, `bytes`, `time`, `quantity`, `either` (number or text), `raw`, or a
message."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message."""

    name: str
    type: Type
    form: Literal["plain", "pointer", "many", "map"] = "plain"
    """A plain field is always sent, and an empty one means that it is not set. A pointer is sent only if it is set."""


Message = dict[int, Field]


def _texts(**numbers: int) -> Message:
    return {number: Field(name, "text") for name, number in numbers.items()}


_OWNER: Message = {
    **_texts(kind=1, name=3, uid=4, apiVersion=5),
    6: Field("controller", "flag", "pointer"),
    7: Field("blockOwnerDeletion", "flag", "pointer"),
}
METADATA: Message = {
    **_texts(name=1, generateName=2, namespace=3, selfLink=4, uid=5, resourceVersion=6),
    7: Field("generation", "number"),
    8: Field("creationTimestamp", "time"),
    9: Field("deletionTimestamp", "time"),
    10: Field("deletionGracePeriodSeconds", "number", "pointer"),
    11: Field("labels", "text", "map"),
    12: Field("annotations", "text", "map"),
    13: Field("ownerReferences", _OWNER, "many"),
    14: Field("finalizers", "text", "many"),
}
_PORT: Message = {
    **_texts(name=1, protocol=2),
    3: Field("port", "number"),
    4: Field("targetPort", "either"),
    5: Field("nodePort", "number"),
    6: Field("appProtocol", "text", "pointer"),
}
_SERVICE: Message = {
    **_texts(clusterIP=3, type=4, sessionAffinity=7, loadBalancerIP=8, externalName=10, externalTrafficPolicy=11),
    1: Field("ports", _PORT, "many"),
    2: Field("selector", "text", "map"),
    5: Field("externalIPs", "text", "many"),
    9: Field("loadBalancerSourceRanges", "text", "many"),
    12: Field("healthCheckNodePort", "number"),
    13: Field("publishNotReadyAddresses", "flag"),
    17: Field("ipFamilyPolicy", "text", "pointer"),
    18: Field("clusterIPs", "text", "many"),
    19: Field("ipFamilies", "text", "many"),
    20: Field("allocateLoadBalancerNodePorts", "flag", "pointer"),
    21: Field("loadBalancerClass", "text", "pointer"),
    22: Field("internalTrafficPolicy", "text", "pointer"),
    23: Field("trafficDistribution", "text", "pointer"),
}
_REFERENCE = _texts(kind=1, namespace=2, name=3, uid=4, apiVersion=5, resourceVersion=6, fieldPath=7)
_PRECONDITIONS: Message = {1: Field("uid", "text", "pointer"), 2: Field("resourceVersion", "text", "pointer")}
DELETION: Message = {
    1: Field("gracePeriodSeconds", "number", "pointer"),
    2: Field("preconditions", _PRECONDITIONS, "pointer"),
    3: Field("orphanDependents", "flag", "pointer"),
    4: Field("propagationPolicy", "text", "pointer"),
    5: Field("dryRun", "text", "many"),
}
_ASKED: Message = _texts(namespace=1, verb=2, group=3, version=4, resource=5, subresource=6, name=7)
_QUOTA: Message = {1: Field("hard", "quantity", "map"), 2: Field("scopes", "text", "many")}


def _object(**parts: Any) -> Message:
    """Return a message with metadata as its first field, and the other fields in order."""
    message: Message = {1: Field("metadata", METADATA)}
    for number, (name, field) in enumerate(parts.items(), start=2):
        message[number] = field if isinstance(field, Field) else Field(name, field)
    return message


KINDS: dict[str, Message] = {
    "Namespace": _object(spec={1: Field("finalizers", "text", "many")}),
    "ConfigMap": _object(
        data=Field("data", "text", "map"),
        binary=Field("binaryData", "bytes", "map"),
        immutable=Field("immutable", "flag", "pointer"),
    ),
    "Secret": _object(
        data=Field("data", "bytes", "map"),
        type="text",
        strings=Field("stringData", "text", "map"),
        immutable=Field("immutable", "flag", "pointer"),
    ),
    "ServiceAccount": _object(
        secrets=Field("secrets", _REFERENCE, "many"),
        pull=Field("imagePullSecrets", _texts(name=1), "many"),
        automount=Field("automountServiceAccountToken", "flag", "pointer"),
    ),
    "ResourceQuota": _object(spec=_QUOTA),
    "Service": _object(spec=_SERVICE),
    "PriorityClass": _object(
        value="number",
        globalDefault="flag",
        description="text",
        preemptionPolicy=Field("preemptionPolicy", "text", "pointer"),
    ),
    "Eviction": _object(deletion=Field("deleteOptions", DELETION, "pointer")),
    "DeleteOptions": DELETION,
    "SelfSubjectReview": _object(),
    "SelfSubjectAccessReview": _object(
        spec={1: Field("resourceAttributes", _ASKED), 2: Field("nonResourceAttributes", _texts(path=1, verb=2))}
    ),
    "SelfSubjectRulesReview": _object(spec=_texts(namespace=1)),
}
"""The messages by kind."""
