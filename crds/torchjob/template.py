"""The part of a pod template torchq relies on.

One rule: the template stays opaque (new Kubernetes fields pass, the API server judges them); only what this project
reads of it has a shape here, so that reading it cannot fail later.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from pydantic.alias_generators import to_camel

from crds.resources import quantities, resource_names
from crds.torchjob import size_limits


def _quantity(value: Any) -> Any:
    quantities.exact(value)
    quantities.parse("", value)
    return value


def _resource(name: str) -> str:
    if len(name) > LONGEST_NAME or not resource_names.RESOURCE.fullmatch(name):
        raise ValueError("not a resource: write cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>")
    return name


LONGEST_NAME = 253 + 1 + 63


def _not_null(value: Any) -> Any:
    return [] if value is None else value


_NOT_NULL = BeforeValidator(_not_null)


def _few(value: Any) -> Any:
    """Before any of them is looked at: each wrong one would be a problem of its own."""
    if isinstance(value, dict) and len(value) > size_limits.MOST_RESOURCES:
        raise ValueError(f"must have at most {size_limits.MOST_RESOURCES} items")
    return value


Quantities = Annotated[
    dict[Annotated[str, AfterValidator(_resource)], Annotated[Any, AfterValidator(_quantity)]], BeforeValidator(_few)
]


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
    env: Annotated[list[EnvVar], FailFast(), _NOT_NULL] = []
    ports: Annotated[list[ContainerPort], FailFast(), _NOT_NULL] = []
    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpecShape(_Shape):
    """The spec of the pods."""

    containers: Annotated[list[Container], FailFast()] = Field(min_length=1, max_length=size_limits.MOST_CONTAINERS)
    init_containers: Annotated[list[Container], FailFast(), _NOT_NULL] = Field(
        default=[], max_length=size_limits.MOST_CONTAINERS
    )
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
