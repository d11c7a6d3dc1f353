"""The part of a pod template that torchq reads.

One rule: the template stays opaque: new Kubernetes fields pass, and the API server validates them. Only the fields that
torchq reads are validated here, so that reading them cannot fail later.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from pydantic.alias_generators import to_camel

from crds.resources import quantities, resource_names
from crds.torchjob import size_limits


def _check_quantity(value: Any) -> Any:
    quantities.exact(value)
    quantities.parse("", value)
    return value


def _check_resource(name: str) -> str:
    if len(name) > LONGEST_NAME or not resource_names.RESOURCE.fullmatch(name):
        raise ValueError("not a resource: write cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>")
    return name


LONGEST_NAME = 253 + 1 + 63


def _list_or_empty(value: Any) -> Any:
    return [] if value is None else value


_NULL_IS_EMPTY = BeforeValidator(_list_or_empty)


def _check_count(value: Any) -> Any:
    """Return the quantities, or ValueError if there are too many; otherwise each invalid quantity would be a
    problem."""
    if isinstance(value, dict) and len(value) > size_limits.MOST_RESOURCES:
        raise ValueError(f"must have at most {size_limits.MOST_RESOURCES} items")
    return value


Quantities = Annotated[
    dict[Annotated[str, AfterValidator(_check_resource)], Annotated[Any, AfterValidator(_check_quantity)]],
    BeforeValidator(_check_count),
]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, alias_generator=to_camel)


class EnvVar(_Shape):
    """The name of an environment variable; its value is not read."""

    name: str


class ContainerPort(_Shape):
    """A port of a container."""

    container_port: int = Field(ge=1, le=65535)
    host_port: int | None = Field(default=None, ge=0, le=65535)
    host_ip: str | None = Field(default=None, alias="hostIP")
    protocol: str | None = None
    name: str | None = None


class Resources(_Shape):
    """The requests and limits of a container or a pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(_Shape):
    """A container or an init container."""

    name: str = Field(min_length=1)
    env: Annotated[list[EnvVar], FailFast(), _NULL_IS_EMPTY] = []
    ports: Annotated[list[ContainerPort], FailFast(), _NULL_IS_EMPTY] = []
    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpecShape(_Shape):
    """The fields of a pod's spec that torchq reads."""

    containers: Annotated[list[Container], FailFast()] = Field(min_length=1, max_length=size_limits.MOST_CONTAINERS)
    init_containers: Annotated[list[Container], FailFast(), _NULL_IS_EMPTY] = Field(
        default=[], max_length=size_limits.MOST_CONTAINERS
    )
    resources: Resources | None = None
    overhead: Quantities | None = None
    restart_policy: str | int | None = None
    host_network: bool | None = None


class PodMetadata(_Shape):
    """Labels and annotations of the pods in addition to those of torchq."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(_Shape):
    """The fields of a PodTemplateSpec that torchq reads."""

    metadata: PodMetadata | None = None
    spec: PodSpecShape
