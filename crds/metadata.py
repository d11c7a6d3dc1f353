"""The part of an object's metadata torchq reads.

One rule: nothing is refused here; the API server has looked at it, or will.
"""

from pydantic import Field

from crds.model import Observed, Time


class OwnerReference(Observed):
    """Whose dependent an object is."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Observed):
    """metav1.ObjectMeta, trimmed. What the API server fills is empty in a manifest that was not submitted yet."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Named(Observed):
    """What a kind asks of its objects' names; the only part of metadata a CustomResourceDefinition may bound."""

    name: str
