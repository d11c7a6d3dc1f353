"""The scenes of the account that restores a backup."""

import json

from coordinator.code import config_maps
from coordinator.rbac.permissions import RESTORE
from crds import labels
from crds.api_resources import (
    CONFIG_MAPS,
    TENANT_QUEUES,
    TORCHJOBS,
)
from kube import errors
from kube.api import Manifest
from tests.support.coordinator import code_stores
from tests.support.coordinator.desk import manifest, task
from tests.support.rbac.access import TENANT
from tests.support.rbac.scenes import users
from tests.support.rbac.scenes.stage import Stage, installation, only_forbidden, scene
from tests.support.rbac.scenes.users import CODE


def saved_job(uid: str) -> Manifest:
    """Return a finished job as it stands in a backup."""
    status = {"phase": "Succeeded", "conditions": [], "completionTime": "2026-01-01T00:00:00Z"}
    metadata = {"uid": uid, "namespace": TENANT, "creationTimestamp": "2026-01-01T00:00:00Z"}
    body = manifest("train", TENANT, {"Master": task()})
    return body | {"metadata": body["metadata"] | metadata, "status": status}


def restore(stage: Stage, *items: Manifest) -> str:
    file = stage.folder / "backup.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return stage.run(RESTORE, "restore", str(file))


@scene(RESTORE, "tenantqueues", "list", "create")
@scene(RESTORE, "torchjobs", "list", "create", "patch")
@scene(RESTORE, "torchjobs/status", "patch")
def _restore_a_backup(stage: Stage) -> str:
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": TENANT}}
    said = restore(stage, body | {"spec": {"weight": 2}}, saved_job("old"))
    assert not said or stage.admin.list(TORCHJOBS, TENANT).items == [], "nothing may be half-done"
    return said


@scene(RESTORE, "modelversions", "list", "create")
def _restore_a_model(stage: Stage) -> str:
    return restore(stage, users.MODEL | {"metadata": {"name": "digits-1", "namespace": TENANT, "uid": "old"}})


def saved_code() -> tuple[Manifest, Manifest]:
    """Return a waiting job as it stands in a backup, and the ConfigMap with its code."""
    archive = code_stores.code(b"pass")
    [part] = config_maps.manifests(archive, 1, TENANT)
    body = saved_job("old") | {"status": {"phase": "Queued"}}
    pod = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [mount.volume for mount in config_maps.source(archive, 1)]
    return body, part


@scene(RESTORE, "configmaps", "get", "create")
def _restore_a_job_with_code(stage: Stage) -> str:
    said = restore(stage, *saved_code())
    assert not said or stage.admin.list(TORCHJOBS, TENANT).items == [], "nothing may be half-done"
    return said


@scene(RESTORE, "configmaps", "patch")
def _restore_a_job_whose_code_exists(stage: Stage) -> str:
    job, part = saved_code()
    stage.admin.create(CONFIG_MAPS, part, TENANT)
    return restore(stage, job)


@scene(RESTORE, "configmaps", "delete")
def _delete_code_as_its_owners_change(stage: Stage) -> str:
    stage.admin.create(CONFIG_MAPS, CODE, TENANT)
    try:
        stage.access.cluster(RESTORE).delete(CONFIG_MAPS, "code", TENANT)
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(RESTORE, "namespaces", "get")
def _tell_whose_redis_it_is(stage: Stage) -> str:
    return installation(stage, RESTORE)


@scene(RESTORE, "leases", "get")
@scene(RESTORE, "services/proxy", "get")
@scene(RESTORE, "serviceaccounts/token", "create")
def _restore_and_ask_who_leads(stage: Stage) -> str:
    file = stage.folder / "backup.json"
    file.write_text(json.dumps(saved_job("old")))
    return only_forbidden(stage.run(RESTORE, "restore", str(file), code=0))


@scene(RESTORE, "torchjobs", "get")
def _go_on_with_a_restored_job(stage: Stage) -> str:
    body = manifest("train", TENANT, {"Master": task()}, suspend=True)
    body["metadata"]["annotations"] = {labels.RESTORED: "old"}
    stage.admin.create(TORCHJOBS, body, TENANT)
    return restore(stage, saved_job("old"))
