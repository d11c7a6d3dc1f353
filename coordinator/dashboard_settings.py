"""The settings of the dashboard that runs in the cluster, as a part of `coordinator.settings.Settings`.

One rule: no setting has a token. The dashboard reads its own from a file, and people bring theirs.
"""

import re
from functools import cached_property
from typing import Annotated

import pydantic
from pydantic import AfterValidator, Field

from coordinator.port_settings import check_url

_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _check_hosts(text: str) -> str:
    for name in _split(text):
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a host, as in torchq.example.org")
    return text


def _split(text: str) -> list[str]:
    return [name.strip().lower() for name in text.split(",") if name.strip()]


class DashboardSettings(pydantic.BaseModel):
    """The settings of an admin about the dashboard that runs in the cluster."""

    # Commands validate `Settings` alone, which is built at once.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", defer_build=True)

    dashboard_port: int = Field(
        default=8470, ge=-1, le=65_535, description="port of the pages of `torchq dashboard serve`; -1: any free one"
    )
    dashboard_address: str = Field(default="127.0.0.1", description="address of that port; in a pod 0.0.0.0")
    dashboard_hosts: Annotated[str, AfterValidator(_check_hosts)] = Field(
        default="",
        description="names by which browsers reach the pages, with commas between them, as the host of an Ingress; "
        "empty: any name",
    )
    dashboard_actions: bool = Field(
        default=False,
        description="whether the pages in the cluster offer to hold, resume, suspend, bump and cancel jobs, and to "
        "change queues; the API server decides for each user",
    )
    dashboard_token_file: str = Field(
        default="",
        description="file with a token of the dashboard's own account for the audience `torchq`, which coordinators "
        "ask for; empty: the dashboard asks the API server for one",
    )
    dashboard_recorder: Annotated[str, AfterValidator(check_url)] = Field(
        default="",
        description="http://HOST:PORT of the recorder, as of its Service; empty: pages say that there is none",
    )

    @cached_property
    def host_names(self) -> frozenset[str]:
        """The names in `dashboard_hosts`."""
        return frozenset(_split(self.dashboard_hosts))
