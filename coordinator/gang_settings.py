"""The settings about gang schedulers, as a part of `coordinator.settings.Settings`.

One rule: the settings are about jobs that do not choose a gang scheduler themselves, and about facts of the cluster
that no job knows.
"""

from typing import Annotated, Literal

import pydantic
from pydantic import Field


class GangSettings(pydantic.BaseModel):
    """The settings of an admin about gang schedulers."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    gang_scheduler: Literal["auto", "none", "volcano", "koordinator", "coscheduling", "kubernetes"] = Field(
        default="auto",
        description="what binds the pods of jobs that do not choose it themselves; auto: volcano if its PodGroups are "
        "served when a worker starts, else none (pods are created once the pool has room for all of them)",
    )
    gang_scheduler_name: Annotated[str, Field(max_length=253)] = Field(
        default="",
        description="the schedulerName of the scheduler that has the plugin coscheduling; empty: the templates'",
    )
    pods_at_once: bool = Field(
        default=False,
        description="create pods before the gang scheduler admits their group, so that a cluster autoscaler sees them",
    )
    gang_preemptable: Literal["", "true", "false"] = Field(
        default="",
        description="whether Volcano's preempt and reclaim may take pods of gangs (volcano.sh/preemptable, on all pods "
        "and their PodGroups); empty: as the templates say, else they may",
    )
