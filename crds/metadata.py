"""The part of an object's metadata that torchq reads.

One rule: these models refuse nothing, because the API server validates metadata.
"""

from typing import Annotated

from pydantic import Field

from crds.model import LenientModel, Time

LONGEST_UID = 64


class OwnerReference(LenientModel):
    """A reference to an owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(LenientModel):
    """A part of metav1.ObjectMeta. Fields that the API server fills in are empty before submission."""

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


class NamedMetadata(LenientModel):
    """The rules for the names of a kind's objects; a CustomResourceDefinition may restrict no other metadata."""

    name: str


class RestoredFrom(LenientModel):
    """The identity of an object before it was restored from a backup."""

    uid: Annotated[str, Field(max_length=LONGEST_UID)]
    """Its first uid."""
    created: Time | None = None
    """When it was created first."""
