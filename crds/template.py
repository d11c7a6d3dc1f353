"""The part of a pod template torchq relies on.

One rule: the template stays opaque (new Kubernetes fields pass, the API server judges them); only what this project
reads of it has a shape here, so that reading it cannot fail later.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from crds import quantities


def _quantity(value: Any) -> Any:
    quantities.exact(value)
    quantities.parse("", value)
    return value


Quantities = dict[str, Annotated[Any, AfterValidator(_quantity)]]


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
