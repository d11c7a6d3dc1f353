"""The scenes of the dashboard's account: the jobs and queues that it watches for all of its visitors."""

from coordinator.rbac.permissions import DASHBOARD
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from tests.support.rbac.scenes.stage import Stage, queue, scene


@scene(DASHBOARD, "torchjobs", "list", "watch")
def _jobs_are_followed(stage: Stage) -> str:
    stage.job()
    return stage.follow(DASHBOARD, TORCHJOBS)


@scene(DASHBOARD, "tenantqueues", "list", "watch")
def _queues_are_followed(stage: Stage) -> str:
    queue(stage)
    return stage.follow(DASHBOARD, TENANT_QUEUES)
