"""The scenes of the recorder's account: what it watches, its Lease, and who asks it."""

import time

from coordinator.rbac.account_manifests import LEASE_NAMESPACE, SYSTEM_NAMESPACE
from coordinator.rbac.permissions import LEASE, RECORDER, SERVICE, WORKER, proxied
from coordinator.recorder.pending_rows import PendingRows
from coordinator.recorder.recorder_lease import RecorderLease
from coordinator.recorder.sights import Sights
from coordinator.worker.recording import RecordingReader
from crds.api_resources import LEASES
from kube import errors
from tests.support.rbac.scenes.stage import Stage, installation, only_forbidden, pod, queue, review, scene


def sights(stage: Stage) -> Sights:
    return Sights(stage.access.cluster(RECORDER), PendingRows(), time.time)


@scene(RECORDER, "torchjobs", "list", "watch")
def _jobs_are_followed(stage: Stage) -> str:
    stage.job()
    return stage.trouble(sights(stage).jobs)


@scene(RECORDER, "pods", "list", "watch")
def _pods_are_followed(stage: Stage) -> str:
    pod(stage, stage.job())
    return stage.trouble(sights(stage).pods)


@scene(RECORDER, "tenantqueues", "list", "watch")
def _queues_are_followed(stage: Stage) -> str:
    queue(stage)
    return stage.trouble(sights(stage).queues)


@scene(RECORDER, "namespaces", "get")
def _tell_whose_history_it_is(stage: Stage) -> str:
    return installation(stage, RECORDER)


@scene(RECORDER, "tokenreviews", "create")
@scene(RECORDER, "subjectaccessreviews", "create")
def _look_who_asks(stage: Stage) -> str:
    return review(stage, RECORDER)


@scene(RECORDER, "leases", "get", "create", "patch")
def _take_the_lease_and_look_who_leads(stage: Stage) -> str:
    cluster = stage.access.cluster(RECORDER)
    lease = RecorderLease(cluster, "me", LEASE_NAMESPACE, {})
    try:
        assert lease.is_free()
        assert lease.renew(1, 2.0)
        cluster.get(LEASES, LEASE, LEASE_NAMESPACE)
    except errors.NotFound:  # no coordinator leads here
        return ""
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(RECORDER, "services/proxy", "get")
def _ask_for_the_pool(stage: Stage) -> str:
    try:
        stage.access.cluster(RECORDER).service(SYSTEM_NAMESPACE, proxied(SERVICE), "/v1/pool", {})  # type: ignore[attr-defined]
    except errors.ClusterError as error:
        return only_forbidden(str(error))
    return ""


@scene(WORKER, "leases", "get")
def _look_how_far_the_history_is_recorded(stage: Stage) -> str:
    with stage.log.at_level("WARNING", "coordinator"):
        RecordingReader(stage.access.cluster(WORKER), LEASE_NAMESPACE, lambda: 0.0)()
    return only_forbidden(stage.log.text)
