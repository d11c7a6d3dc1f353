"""The settings about the leader's Lease, as a part of `coordinator.settings.Settings`, and what a Lease says of its
holder.

One rule: a leader that cannot renew its Lease stops leading before another coordinator may take the Lease.
"""

import pydantic
from pydantic import Field

from coordinator.node_settings import Seconds
from crds.labels import GROUP

API_ANNOTATION = f"{GROUP}/api"
"""Annotation of a Lease: the URL of its holder's read-only API, if it serves one."""
SERVICE_ANNOTATION = f"{GROUP}/service"
"""Annotation of a Lease: NAMESPACE/NAME of the Service of the coordinators, if the leader serves its API there."""
VERSION_ANNOTATION = f"{GROUP}/version"
"""Annotation of a Lease: the version of its holder."""


class LeaseSettings(pydantic.BaseModel):
    """The settings of an admin about the Lease. The three times are those of client-go's leader election."""

    # Commands validate `Settings` alone, which is built at once.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", defer_build=True)

    lease_namespace: str = Field(default="kube-system", description="namespace of the leader's Lease")
    lease_seconds: Seconds = Field(default=15.0, description="a leader silent for this long is replaced")
    renew_deadline: Seconds = Field(
        default=10.0,
        description="a leader that could not renew its Lease for this long leads no longer; below lease_seconds",
    )
    renew_seconds: Seconds = Field(default=2.0, description="how often the leader renews its Lease")

    @pydantic.model_validator(mode="after")
    def _order(self) -> "LeaseSettings":
        if self.renew_deadline >= self.lease_seconds:
            raise ValueError("renew_deadline: must be below lease_seconds")
        if self.renew_seconds * 2 > self.renew_deadline:
            raise ValueError("renew_seconds: must be at most half of renew_deadline")
        return self
