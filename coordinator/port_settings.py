"""The settings about the ports of processes, as a part of `coordinator.settings.Settings`.

One rule: every port is off unless an admin sets it, and no address other than loopback is used unless an admin sets it.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated
from urllib.parse import urlsplit

import pydantic
from pydantic import AfterValidator, Field

from crds.label_names import DNS_LABEL

ANY_PORT = -1
"""The value of a port's setting that means any free port."""


def check_url(text: str) -> str:
    """Return the URL of a server of torchq, or an empty text. Raises ValueError."""
    if not text:
        return text
    problem = ValueError("must be http://HOST:PORT")
    try:
        parts = urlsplit(text)
        is_odd = parts.path.strip("/") or parts.query or parts.username is not None or parts.port == 0
    except ValueError:
        raise problem from None
    if parts.scheme not in ("http", "https") or not parts.hostname or is_odd:
        raise problem
    return text


def _is_label(text: str) -> bool:
    return len(text) <= 63 and re.fullmatch(DNS_LABEL, text) is not None


@dataclass(frozen=True, slots=True)
class ServiceName:
    """A Service of torchq, by its namespace and name."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "ServiceName":
        """Parse NAMESPACE/NAME. Raises ValueError."""
        namespace, slash, name = text.partition("/")
        if not slash or not all(_is_label(part) for part in (namespace, name)):
            raise ValueError("must be NAMESPACE/NAME, a Service, as in torchq-system/torchq-coordinator")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def _check_service(text: str) -> str:
    return str(ServiceName.parse(text))


class PortSettings(pydantic.BaseModel):
    """The settings of an admin about ports."""

    # Commands validate `Settings` alone, which is built at once.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", defer_build=True)

    health_port: int = Field(
        default=0,
        ge=-1,
        le=65_535,
        description="port of a coordinator's health, status and read-only API (/v1), or of a recorder's read-only API; "
        "0: none, -1: any free one",
    )
    health_address: str = Field(
        default="127.0.0.1",
        description="address of that port; on loopback, which every user of the machine reaches, only probes are "
        "answered without the token of an account",
    )
    metrics_port: int = Field(
        default=0,
        ge=-1,
        le=65_535,
        description="port of /healthz, /readyz and /metrics of a coordinator, a recorder, or a worker with all its "
        "processes, apart from /v1, which names jobs; 0: none, -1: any free one",
    )
    metrics_address: str = Field(
        default="127.0.0.1", description="address of that port; in a pod 0.0.0.0, so that the kubelet reaches it"
    )
    metrics_token_file: str = Field(
        default="",
        description="file with a secret of at least 16 bytes, which /metrics then asks for (Authorization: Bearer): "
        "needed where others reach the port, as on loopback; empty: whoever reaches the port reads the metrics",
    )
    metrics_queues: int = Field(
        default=1_000,
        ge=0,
        le=100_000,
        description="most queues with metrics of their own; all others share series with an empty name",
    )
    report_port: int = Field(
        default=0,
        ge=-1,
        le=65_535,
        description="port on which a coordinator takes what training code reports; 0: none, -1: any free one",
    )
    report_address: str = Field(
        default="127.0.0.1",
        description="address of that port; the pods of jobs must reach it, and nobody else needs it",
    )
    report_key_file: str = Field(
        default="",
        description="file with a secret of at least 16 bytes, the same for coordinators and workers, from which the "
        "tokens of jobs are made; without it there are no reports",
    )
    report_url: Annotated[str, AfterValidator(check_url)] = Field(
        default="",
        description="http://HOST:PORT at which pods reach the coordinators' report_port; workers put it into the "
        "environment of pods as TORCHQ_REPORT_URL; empty: pods do not report",
    )
    kubeflow_progress: bool = Field(
        default=True,
        description="whether pods that report also get the variables of Kubeflow Trainer's progress protocol, which "
        "the Trainer of Hugging Face transformers speaks by itself",
    )
    service: Annotated[str, AfterValidator(_check_service)] = Field(
        default="torchq-system/torchq-coordinator",
        description="NAMESPACE/NAME of the Service that leads to health_port; the leader writes it to its Lease, where "
        "commands find it; a command that sets it asks this Service",
    )
    recorder_service: Annotated[str, AfterValidator(_check_service)] = Field(
        default="torchq-system/torchq-recorder",
        description="NAMESPACE/NAME of the Service that leads to health_port of recorders; a recorder writes it to its "
        "Lease, where commands find it",
    )

    @cached_property
    def service_name(self) -> ServiceName:
        """The Service in `service`."""
        return ServiceName.parse(self.service)
