"""The scene of the dashboard's account: the jobs that it watches for all of its visitors."""

from coordinator.rbac.permissions import DASHBOARD
from crds.api_resources import TORCHJOBS
from tests.support.rbac.scenes.stage import Stage, scene


@scene(DASHBOARD, "torchjobs", "list", "watch")
def _jobs_are_followed(stage: Stage) -> str:
    stage.job()
    return stage.follow(DASHBOARD, TORCHJOBS)
