"""One scene for each permission of each account: the action that needs the permission, and the error without it."""

from tests.support.rbac.scenes import admins, coordinator, dashboard, recorder, restore, users, worker
from tests.support.rbac.scenes.stage import OTHERS, SCENES, Stage

__all__ = ["OTHERS", "SCENES", "Stage", "admins", "coordinator", "dashboard", "recorder", "restore", "users", "worker"]
