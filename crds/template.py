"""The part of a pod template torchq relies on.

One rule: the template stays opaque (new Kubernetes fields pass, the API server judges them); only what this project
reads of it has a shape here, so that reading it cannot fail later.
"""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from crds import quantities


def _quantity(value: Any) -> Any:
    quantities.exact(value)
    quantities.parse("", value)
    return value


def _resource(name: str) -> str:
    if len(name) > LONGEST_NAME or not RESOURCE.fullmatch(name):
        raise ValueError("not a resource: write cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>")
    return name


LONGEST_NAME = 253 + 1 + 63
RESOURCE = re.compile(
    r"cpu|memory|ephemeral-storage|hugepages-[-._A-Za-z0-9]{1,53}"
    r"|(?!requests\.)[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
)
"""What a container may ask for, as the API server judges it: one of its own names, or one with a domain."""
DEEPEST = 100
"""How deep the maps and lists of a template may be nested: a pod needs less than 20."""

Quantities = dict[Annotated[str, AfterValidator(_resource)], Annotated[Any, AfterValidator(_quantity)]]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, alias_generator=to_camel)


class EnvVar(_Shape):
    """An environment variable, by name."""

    name: str


class ContainerPort(_Shape):
    """A port a container declares."""

    container_port: int = Field(ge=1, le=65535)
    host_port: int | None = Field(default=None, ge=0, le=65535)
    host_ip: str | None = Field(default=None, alias="hostIP")
    protocol: str | None = None
    name: str | None = None


class Resources(_Shape):
    """What a container or a pod asks for."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(_Shape):
    """A container or an init container."""

    name: str = Field(min_length=1)
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpecShape(_Shape):
    """The spec of the pods."""

    containers: list[Container] = Field(min_length=1)
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Quantities | None = None
    host_network: bool | None = None


class PodMetadata(_Shape):
    """Labels and annotations the pods get besides ours."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(_Shape):
    """metav1.PodTemplateSpec as far as it is looked at."""

    metadata: PodMetadata | None = None
    spec: PodSpecShape


def is_deep(value: Any, most: int = DEEPEST) -> bool:
    """Whether a value is nested deeper than anybody can walk through it without fear."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
