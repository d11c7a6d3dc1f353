"""The scenes of users: their jobs, code and logs, and requests for other sizes."""

import json
import logging
from collections.abc import Iterator
from typing import Any

from coordinator.cache.watches import Watches
from coordinator.rbac.permissions import COORDINATOR, DOCTOR, USER, WORKER
from crds import model_version
from crds.api_resources import (
    CONFIG_MAPS,
    MODEL_VERSIONS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    TORCHJOBS,
    Resource,
)
from crds.keys import JobKey
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from gang import backends
from kube import errors
from kube.api import Manifest
from kube.streams import LogStreams
from reconcilers.values import (
    DeleteObject,
    PatchRequest,
    SetWorkers,
)
from reconcilers.views import scale_request_view
from reconcilers.views.scale_request_view import RequestReader, RequestView
from tests.support.coordinator.desk import manifest, task
from tests.support.rbac.access import TENANT
from tests.support.rbac.gatekeeper import resource_name
from tests.support.rbac.scenes.stage import (
    Scene,
    Stage,
    ask_recorder,
    installation,
    only_forbidden,
    owner,
    pod,
    queue,
    scene,
)


@scene(USER, "torchjobs", "create")
def _submit(stage: Stage) -> str:
    file = stage.folder / "job.json"
    file.write_text(json.dumps(manifest("train", TENANT)))
    return stage.run(USER, "submit", str(file))


@scene(USER, "torchjobs", "get")
@scene(USER, "pods", "list")
def _show(stage: Stage) -> str:
    stage.job()
    return stage.run(USER, "job", "show", "train")


@scene(USER, "events", "list")
def _show_with_events(stage: Stage) -> str:
    stage.job()
    return only_forbidden(stage.run(USER, "job", "show", "train", code=0))


@scene(USER, "configmaps", "get", "create", "patch")
def _keep_code_in_a_config_map(stage: Stage) -> str:
    key, cluster = stage.job(), stage.access.cluster(USER)
    try:
        cluster.create(CONFIG_MAPS, CODE, TENANT)
        cluster.get(CONFIG_MAPS, "code", TENANT)
        cluster.patch(CONFIG_MAPS, "code", {"metadata": {"ownerReferences": [_user_of(key)]}}, TENANT)
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(USER, "configmaps", "delete")
def _kubectl_delete_code(stage: Stage) -> str:
    stage.admin.create(CONFIG_MAPS, CODE, TENANT)
    try:
        stage.access.cluster(USER).delete(CONFIG_MAPS, "code", TENANT)
    except errors.ClusterError as error:
        return str(error)
    return ""


CODE = {
    "apiVersion": CONFIG_MAPS.api_version,
    "kind": CONFIG_MAPS.kind,
    "metadata": {"name": "code"},
    "immutable": True,
    "data": {"part": "x"},
}
"""A ConfigMap with the code of jobs."""


def _user_of(key: JobKey) -> Manifest:
    """Return the owner reference of a job that uses an object but does not control it."""
    return {name: value for name, value in owner(key).items() if name != "controller"}


@scene(USER, "resourcequotas", "list")
def _show_with_resource_quotas(stage: Stage) -> str:
    stage.job({"phase": "Queued", "queue": {"reason": "NamespaceQuota", "message": "no room"}})
    return only_forbidden(stage.run(USER, "job", "show", "train", code=0))


def _shown_with_its_gang(scheduler: str) -> Scene:
    def shown(stage: Stage) -> str:
        admission = {"queue": TENANT, "attempt": 1, "epoch": 1, "gangScheduler": scheduler}
        stage.job({"phase": "Admitted", "admission": admission})
        return only_forbidden(stage.run(USER, "job", "show", "train", code=0))

    return shown


for backend in backends.BACKENDS.values():
    if backend.resource is not None:
        scene(USER, resource_name(backend.resource.group, backend.resource.plural), "list")(
            _shown_with_its_gang(backend.name)
        )


@scene(USER, "modelversions", "list", "delete")
def _delete_a_model(stage: Stage) -> str:
    stage.admin.create(MODEL_VERSIONS, MODEL, TENANT)
    return stage.run(USER, "model", "delete", "digits", "--yes")


@scene(USER, "modelversions", "get", "create")
def _record_a_model_by_hand(stage: Stage) -> str:
    cluster = stage.access.cluster(USER)
    try:
        cluster.create(MODEL_VERSIONS, MODEL, TENANT)
        cluster.get(MODEL_VERSIONS, "digits-1", TENANT)
    except errors.ClusterError as error:
        return str(error)
    return ""


MODEL = model_version.manifest(
    ModelVersionSpec(model_name="digits", version="1", path=f"{TENANT}/train-1/model"), ModelVersionStatus()
)
"""A ModelVersion of another job than the present one."""


@scene(USER, "torchjobs", "list")
def _list(stage: Stage) -> str:
    return stage.run(USER, "job", "list")


@scene(USER, "torchjobs", "patch")
def _suspend(stage: Stage) -> str:
    stage.job()
    return stage.run(USER, "job", "suspend", "train")


@scene(USER, "torchjobs", "delete")
def _delete(stage: Stage) -> str:
    stage.job()
    return stage.run(USER, "job", "delete", "train")


@scene(USER, "pods", "get")
def _which_run_a_log_is_of(stage: Stage) -> str:
    _with_container(stage, stage.job({"phase": "Succeeded"}))
    # No node runs the pod, so no log of the pod exists.
    stage.monkeypatch.setattr(LogStreams, "job_runs", _no_runs)
    stage.monkeypatch.setattr(LogStreams, "logs", lambda *_, **__: NoPieces())
    return only_forbidden(stage.run(USER, "job", "logs", "train"))


@scene(USER, "pods/log", "get")
def _logs(stage: Stage) -> str:
    _with_container(stage, stage.job({"phase": "Succeeded"}))
    stage.monkeypatch.setattr(LogStreams, "job_runs", _no_runs)
    return only_forbidden(stage.run(USER, "job", "logs", "train"))


@scene(USER, "torchjobs", "watch")
def _wait_for_a_job(stage: Stage) -> str:
    stage.job()
    return stage.follow(USER, TORCHJOBS, TENANT)


@scene(USER, "pods", "watch")
def _follow_the_pods_of_a_job(stage: Stage) -> str:
    pod(stage)
    return stage.follow(USER, PODS, TENANT)


def _with_container(stage: Stage, key: JobKey) -> None:
    """Create a pod whose container has ended."""
    pod(stage, key)
    state = {"terminated": {"exitCode": 0}}
    container = {"name": "torch", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    stage.admin.patch(PODS, "train-master-0", {"status": status}, TENANT, subresource="status")


def _no_runs(*_: Any) -> Any:
    raise errors.NotFound("only the embedded API server lists runs")


class NoPieces(Iterator[bytes]):
    """An answer without output."""

    def __next__(self) -> bytes:
        raise StopIteration

    def close(self) -> None:
        """Do nothing."""


@scene(WORKER, "namespaces", "get")
def _tell_its_cluster(stage: Stage) -> str:
    return installation(stage, WORKER)


@scene(DOCTOR, "namespaces", "get")
def _tell_the_cluster_to_redis(stage: Stage) -> str:
    return installation(stage, DOCTOR)


@scene(WORKER, "pods/log", "get")
def _why_a_pod_failed(stage: Stage) -> str:
    held = {"queue": TENANT, "attempt": 1, "epoch": 1, "pick": 1, "charge": {"jobs": 1, "pods": 1, "cpu": 1000}}
    key = stage.job({"phase": "Running", "attempt": 1, "admission": held | {"gangScheduler": "none"}})
    pod(stage, key)
    words = "Root Cause (first observed failure):\n exitcode  : 1 (pid: 9)\n" + "=" * 2048
    terminated = {"exitCode": 1, "reason": "Error", "message": words, "finishedAt": "2026-01-02T03:04:05Z"}
    container = {"name": "torch", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [container | {"state": {"terminated": terminated}}]}
    stage.admin.patch(PODS, "train-master-0", {"status": status}, TENANT, subresource="status")
    with stage.log.at_level(logging.INFO, "reconcilers"):
        said = stage.reconcile(key)
    return said + only_forbidden(stage.log.text)


@scene(USER, "tenantqueues", "get")
def _look_at_their_queue(stage: Stage) -> str:
    queue(stage)
    return stage.run(USER, "queue", "list", TENANT)


@scene(USER, "events", "create")
def _hold(stage: Stage) -> str:
    stage.job()
    return only_forbidden(stage.run(USER, "job", "hold", "train", code=0))


@scene(USER, "leases", "get")
@scene(USER, "services/proxy", "get")
@scene(USER, "serviceaccounts/token", "create")
def _ask_for_the_next_picks_and_the_history(stage: Stage) -> str:
    return only_forbidden(stage.run(USER, "next")) or ask_recorder(stage, USER)


@scene(USER, "torchjobs/scale", "patch")
def _scale_to_a_number(stage: Stage) -> str:
    stage.job(suspend=True, torchElasticPolicy={}, torchTaskSpecs={"Worker": task(2)})
    return stage.run(USER, "job", "scale", "train", "3")


@scene(USER, "torchjobs/scale", "get", "update")
def _kubectl_scale_from_a_known_number(stage: Stage) -> str:
    return stage.kubectl(USER, "scale", "torchjob/train", "--current-replicas", "1", "--replicas", "2")


def request_body(resource: Resource) -> Manifest:
    """Return a scale request that the API server accepts."""
    change: Manifest = {"toAdd": {}} if resource is SCALE_OUTS else {"toDelete": {}}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "request"},
        "spec": {"selector": {"name": "train"}, **change},
    }


def scale_scenes(resource: Resource, size: str) -> None:
    """Define the scenes of one kind of scale request."""
    body = request_body(resource)

    @scene(USER, resource.plural, "create")
    def _scale_by_a_number(stage: Stage) -> str:
        key = stage.job(torchElasticPolicy={}, torchTaskSpecs={"Worker": task(2)})
        admission = {"queue": TENANT, "attempt": 1, "epoch": 1, "workers": 2}
        running = {"status": {"phase": "Running", "admission": admission}}
        stage.admin.patch(TORCHJOBS, key.name, running, TENANT, subresource="status")
        return stage.run(USER, "job", "scale", "train", size)

    @scene(USER, resource.plural, "list", "watch")
    def _kubectl_get_requests_watch(stage: Stage) -> str:
        stage.admin.create(resource, body, TENANT)
        return stage.follow(USER, resource, TENANT)

    @scene(USER, resource.plural, "get", "delete")
    def _kubectl_get_and_delete_a_request(stage: Stage) -> str:
        stage.admin.create(resource, body, TENANT)
        try:
            stage.access.cluster(USER).get(resource, "request", TENANT)
            stage.access.cluster(USER).delete(resource, "request", TENANT)
        except errors.ClusterError as error:
            return str(error)
        return ""


def request_scenes(resource: Resource) -> None:
    """Define the scenes of the processes that carry out one kind of scale request."""
    body = request_body(resource)

    def request(stage: Stage) -> RequestView:
        return scale_request_view.trim(stage.admin.create(resource, body, TENANT))

    @scene(COORDINATOR, resource.plural, "list", "watch")
    def _requests_are_followed(stage: Stage) -> str:
        request(stage)
        watches = Watches(stage.access.cluster(COORDINATOR), nodes=False)
        return stage.trouble(watches.requests._informer(resource))

    @scene(WORKER, resource.plural, "list", "watch")
    def _a_workers_requests(stage: Stage) -> str:
        request(stage)
        return stage.follow(WORKER, resource)

    @scene(WORKER, resource.plural, "get")
    def _a_request_is_newer_than_the_cache(stage: Stage) -> str:
        found = request(stage)
        key = JobKey(TENANT, "train", found.uid)
        reader = RequestReader(stage.access.cluster(WORKER), Requests([found]))
        reader.wrote({found.uid: scale_request_view.version(found) + 1})
        try:
            assert reader.of(key)
        except errors.ClusterError as error:
            return str(error)
        return ""

    @scene(WORKER, resource.plural, "patch")
    def _a_request_gets_its_owner(stage: Stage) -> str:
        key = stage.job()
        return stage.apply(key, PatchRequest(request(stage), {"metadata": {"ownerReferences": [owner(key)]}}))

    @scene(WORKER, f"{resource.plural}/status", "patch")
    def _a_request_has_failed(stage: Stage) -> str:
        return stage.apply(stage.job(), PatchRequest(request(stage), {"status": {"phase": "Failed"}}, "status"))

    @scene(WORKER, resource.plural, "delete")
    def _a_request_goes_when_its_time_has_come(stage: Stage) -> str:
        key, found = stage.job(), request(stage)
        return stage.apply(key, DeleteObject(resource, found.name, found.uid))


class Requests(list[RequestView]):
    """A cache of requests for one job."""

    def indexed(self, _: str) -> list[RequestView]:
        return self


@scene(WORKER, "torchjobs/scale", "patch")
def _a_request_changes_the_size(stage: Stage) -> str:
    key = stage.job(torchElasticPolicy={}, torchTaskSpecs={"Worker": task(2)})
    version = stage.admin.get(TORCHJOBS, key.name, TENANT)["metadata"]["resourceVersion"]
    return stage.apply(key, SetWorkers(3, version))


scale_scenes(SCALE_OUTS, "+1")
scale_scenes(SCALE_INS, "-1")
request_scenes(SCALE_OUTS)
request_scenes(SCALE_INS)
