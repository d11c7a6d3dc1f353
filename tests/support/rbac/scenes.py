"""One scene for each permission of each account: the action that needs it, and the error without it.

One rule: a scene returns the text that a user would read: of a command, of the log, or of a process's health.
"""

import contextlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coordinator.cache import optional_kinds, own_installation
from coordinator.cache.watches import Watches
from coordinator.cli import main, session
from coordinator.code import config_maps
from coordinator.doctor.collect import Collector
from coordinator.leader import rebuild_request
from coordinator.leader.election import LeaderElection, LeaseConfig
from coordinator.leader.queue_status_writer import QueueStatusWriter
from coordinator.leader.reason_writer import ReasonWriter
from coordinator.rbac.manifests import LEASE_NAMESPACE
from coordinator.rbac.permissions import COORDINATOR, DOCTOR, LEASE, QUEUE_ADMIN, RESTORE, USER, WORKER, Role
from coordinator.routing.eligibility import Eligibility
from crds import labels
from crds.api_resources import (
    ALPHA_POD_GROUPS,
    ALPHA_RECREATE_REQUESTS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    RECREATE_REQUESTS,
    RESOURCE_QUOTAS,
    SCALE_INS,
    SCALE_OUTS,
    SERVICES,
    TENANT_QUEUES,
    TORCHJOBS,
    Resource,
)
from crds.keys import JobKey
from gang import backends
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from kube.streams import LogStreams
from queues.errors import StoreLost
from queues.rules import PickRules
from queues.values import Reservation, Task
from reconcilers.apply import events
from reconcilers.apply.apply import Application
from reconcilers.errors import NameTaken
from reconcilers.observe import pods_informer
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    CreateObject,
    DeleteObject,
    EmitEvent,
    PatchObject,
    PatchPodMetadata,
    PatchRequest,
    Plan,
    SetWorkers,
)
from reconcilers.views import pod_view, scale_request_view
from reconcilers.views.pod_group_view import GroupReader
from reconcilers.views.queue_view import queues_informer
from reconcilers.views.request_reader import RequestReader
from reconcilers.views.scale_request_view import RequestView
from tests.support.acceptance.stack import until
from tests.support.coordinator import code_stores
from tests.support.coordinator.desk import manifest, task
from tests.support.kubectl.command import Kubectl
from tests.support.rbac.access import TENANT, Access, Gated
from tests.support.rbac.gatekeeper import resource_name

SYNC_SECONDS = 60.0
OTHERS = tuple(each for each in optional_kinds.KINDS if each not in (ALPHA_POD_GROUPS, ALPHA_RECREATE_REQUESTS))
"""All foreign kinds; one version of each is enough."""

POLICY = {"mode": "InPlaceRestart"}
"""An elastic policy without a rendezvous store: the first worker has a service that others connect to."""


@dataclass
class Stage:
    """An API server with a job in the tenant's namespace, and the accounts that act on it."""

    access: Access
    monkeypatch: pytest.MonkeyPatch
    log: pytest.LogCaptureFixture
    folder: Path
    made: list[Any] = field(default_factory=list)

    @property
    def admin(self) -> Cluster:
        return self.access.admin

    def job(self, status: Manifest | None = None, name: str = "train", only: str = "Master", **spec: Any) -> JobKey:
        """Create a job of one pod and return its key."""
        body = manifest(name, TENANT, {only: task()}, **spec)
        made = self.admin.create(TORCHJOBS, body, TENANT)["metadata"]
        if status is not None:
            self.admin.patch(TORCHJOBS, name, {"status": status}, TENANT, subresource="status")
        return JobKey(TENANT, name, made["uid"])

    def reconcile(self, key: JobKey, *, room: bool = True, worker: Cluster | None = None) -> str:
        """Let a worker reconcile the job once, and return its error, or an empty text."""
        cluster = worker or self.access.cluster(WORKER)
        held = Reservation(
            key=key, queue=TENANT, attempt=1, epoch=1, pick=1, charge={"jobs": 1, "pods": 1, "cpu": 1000}
        )
        work = Task(key=key, token="t", tenant=TENANT, seen=0, failures=0, reservation=held if room else None)
        # The cache uses the admin's account, since the scene is about requests after the cache is filled.
        with pods_informer(self.admin) as pods, Reconciler(cluster, pods, ReconcileSettings()) as reconciler:
            assert pods.wait_synced(SYNC_SECONDS)
            try:
                reconciler(work, lambda: True)
            except errors.ClusterError as error:
                return str(error)
        return ""

    def apply(self, key: JobKey, *actions: Action) -> str:
        """Let a worker carry out a plan, and return its error and its log."""
        cluster, settings = self.access.cluster(WORKER), ReconcileSettings()
        with ThreadPoolExecutor(1) as threads, self.log.at_level(logging.DEBUG, "reconcilers"):
            work = Application(cluster, settings, threads, time.time, key, lambda: True, lambda *_: "")
            try:
                outcome = work.run(Plan(actions))
            except errors.ClusterError as error:
                return str(error)
        return str(outcome.blocked or "") + self.log.text

    def run(self, role: Role, *arguments: str, code: int | None = None) -> str:
        """Run a command under an account and return its output."""
        environment = {"TORCHQ_NAMESPACE": TENANT}
        if isinstance(self.access, Gated):
            self.monkeypatch.setattr(session.client, "connect", lambda *_: self.access.cluster(role))
        else:
            environment["TORCHQ_KUBECONFIG"] = str(self.access.kubeconfig(role))  # type: ignore[attr-defined]
        result = CliRunner().invoke(main.main, arguments, env=environment, prog_name="torchq")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert code is None or result.exit_code == code, result.output
        return result.output if result.exit_code == 1 or code is not None else ""

    def kubectl(self, role: Role, *arguments: str) -> str:
        """Run kubectl under an account, with an elastic job in the tenant's namespace; return its error, empty if it
        succeeds."""
        if not shutil.which("kubectl"):
            pytest.skip("kubectl is not on PATH")
        body = manifest("train", TENANT, torchElasticPolicy={}, suspend=True)
        self.admin.create(TORCHJOBS, body, TENANT)
        with self.access.config(role, self.folder) as kubeconfig:
            said = Kubectl(kubeconfig, self.folder, TENANT).try_run(*arguments)
        return "" if said.code == 0 else said.err

    def follow(self, role: Role, resource: Resource, namespace: str = "") -> str:
        """Run an informer of this account; return its error, empty if it follows."""
        informer = Informer(self.access.cluster(role), resource, trim=lambda each: each, namespace=namespace)
        return self.trouble(informer)

    def trouble(self, informer: Informer[Any]) -> str:
        """Return the informer's error, or an empty text once its watch has shown a change."""
        seen = threading.Event()
        informer.on_change = lambda before, _: seen.set() if before is not None else None
        with informer:
            until(lambda: informer.synced or informer.failing)
            until(lambda: informer.failing or seen.is_set() or self.touch(informer))
            return informer.failing

    def touch(self, informer: Informer[Any]) -> None:
        """Change each object of the informer's kind."""
        resource = informer.resource
        for item in self.admin.list(resource, informer.namespace).items:
            metadata = item["metadata"]
            change = {"metadata": {"annotations": {"touched": metadata["resourceVersion"]}}}
            self.admin.patch(resource, metadata["name"], change, metadata.get("namespace", ""))


Scene = Callable[[Stage], str]
SCENES: dict[tuple[str, str, str], Scene] = {}
"""The scenes by role, resource and verb."""


def scene(role: Role, target: str, *verbs: str) -> Callable[[Scene], Scene]:
    def add(function: Scene) -> Scene:
        for verb in verbs:
            SCENES[role.name, target, verb] = function
        return function

    return add


def owner(key: JobKey) -> Manifest:
    """Return the owner reference to the job that controls an object."""
    own = {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "name": key.name, "uid": key.uid}
    return own | {"controller": True}


def pod(stage: Stage, key: JobKey | None = None, name: str = "train-master-0") -> None:
    """Create a pod of a job, or one without an owner."""
    body: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    if key is not None:
        found = {labels.JOB_UID: key.uid, labels.JOB_NAME: key.name, labels.ATTEMPT: "1", labels.RESTART: "0"}
        body["metadata"]["labels"] = found | {labels.TASK_TYPE: "master", labels.TASK_INDEX: "0"}
        body["metadata"]["ownerReferences"] = [owner(key)]
    stage.admin.create(PODS, body | {"spec": {"containers": [{"name": "torch", "image": "none"}]}}, TENANT)


def service(stage: Stage, key: JobKey | None = None) -> None:
    """Create a service with the name that the job's first worker needs."""
    # The owner has to exist: otherwise garbage collection would delete the service first.
    own = owner(key or stage.job(name="another"))
    metadata = {"name": "train-worker-0", "labels": {labels.JOB_UID: own["uid"]}, "ownerReferences": [own]}
    spec = {"clusterIP": "None", "ports": [{"port": 1, "targetPort": 1, "protocol": "TCP"}]}
    stage.admin.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}, TENANT)


def budget(stage: Stage, key: JobKey) -> None:
    """Create a budget with the name of the first one that a job needs."""
    own = owner(key)
    metadata = {"name": "train-evictions-1", "labels": {labels.JOB_UID: own["uid"]}, "ownerReferences": [own]}
    body = {"apiVersion": POD_DISRUPTION_BUDGETS.api_version, "kind": "PodDisruptionBudget", "metadata": metadata}
    selector = {"matchLabels": {labels.JOB_UID: own["uid"]}}
    stage.admin.create(POD_DISRUPTION_BUDGETS, body | {"spec": {"minAvailable": 1, "selector": selector}}, TENANT)


def queue(stage: Stage) -> None:
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": TENANT}}
    stage.admin.create(TENANT_QUEUES, body | {"spec": {"weight": 2}})


def node(stage: Stage) -> None:
    stage.admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})


# The coordinator.


@scene(COORDINATOR, "torchjobs", "list", "watch")
def _jobs_are_followed(stage: Stage) -> str:
    stage.job()
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).jobs)


@scene(COORDINATOR, "torchjobs", "get")
def _jobs_are_read_again(stage: Stage) -> str:
    key = stage.job()
    try:
        Watches(stage.access.cluster(COORDINATOR), nodes=False).read(key)
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(COORDINATOR, "tenantqueues", "list", "watch")
def _queues_are_followed(stage: Stage) -> str:
    queue(stage)
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).queues)


@scene(COORDINATOR, "priorityclasses", "list", "watch")
def _priority_classes_are_followed(stage: Stage) -> str:
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).rule_watches.classes)


@scene(COORDINATOR, "namespaces", "list", "watch")
def _namespaces_are_followed(stage: Stage) -> str:
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).rule_watches.namespaces)


@scene(COORDINATOR, "resourcequotas", "list", "watch")
def _resource_quotas_are_followed(stage: Stage) -> str:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}}
    stage.admin.create(RESOURCE_QUOTAS, body | {"spec": {"hard": {"pods": "4"}}}, TENANT)
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).rule_watches.quotas)


@scene(COORDINATOR, "pods", "list", "watch")
def _pods_are_followed(stage: Stage) -> str:
    pod(stage)
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).pods)


@scene(COORDINATOR, "nodes", "list", "watch")
def _nodes_are_followed(stage: Stage) -> str:
    node(stage)
    nodes = Watches(stage.access.cluster(COORDINATOR), nodes=True).nodes
    assert nodes is not None
    return stage.trouble(nodes)


@scene(COORDINATOR, "tenantqueues/status", "patch")
def _queues_say_how_they_do(stage: Stage) -> str:
    queue(stage)
    stage.job()
    cluster = stage.access.cluster(COORDINATOR)
    watches = Watches(stage.admin, nodes=False)
    with contextlib.ExitStack() as running, stage.log.at_level(logging.WARNING):
        for informer in watches.informers:
            running.enter_context(informer)
        until(lambda: watches.synced)
        writer = QueueStatusWriter(cluster, watches)
        for _ in range(3):
            writer.write()
    assert len(stage.log.records) <= 1, "said once"
    return stage.log.text


@scene(COORDINATOR, "torchjobs/status", "patch")
def _jobs_say_why_they_wait(stage: Stage) -> str:
    key = stage.job()
    watches = Watches(stage.admin, nodes=False)
    reasons = ReasonWriter(stage.access.cluster(COORDINATOR), watches, Nothing(), PickRules(), after=1.0)  # type: ignore[arg-type]
    with watches.jobs, stage.log.at_level(logging.WARNING):
        until(lambda: watches.job(key) is not None)
        for _ in range(3):
            job = watches.job(key)
            assert job is not None
            reasons.note(job, Eligibility("Held", "held back by its owner"))
            reasons.step()
    assert len(stage.log.records) <= 1, "said once"
    return stage.log.text


def leadership(stage: Stage, times: int) -> str:
    leader = LeaderElection(
        stage.access.cluster(COORDINATOR),
        LeaseConfig("me", LEASE_NAMESPACE, lease_seconds=15.0, renew_deadline=10.0, renew_seconds=2.0),
    )
    try:
        for _ in range(times):
            leader.step()
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(COORDINATOR, "leases", "create")
def _the_lease_is_made(stage: Stage) -> str:
    return leadership(stage, 1)


@scene(COORDINATOR, "leases", "get", "patch")
def _the_lease_is_taken_and_kept(stage: Stage) -> str:
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": LEASE}, "spec": {}}
    stage.admin.create(LEASES, body, LEASE_NAMESPACE)
    return leadership(stage, 2)


def foreign_object(resource: Resource, key: JobKey) -> Manifest:
    metadata = {
        "name": "train-0",
        "labels": {labels.JOB_UID: key.uid, labels.JOB_NAME: key.name},
        "annotations": {labels.POD_UID: key.uid},  # the uid of the job stands for that of a pod
        "ownerReferences": [owner(key)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def made_for(stage: Stage, resource: Resource, key: JobKey) -> str:
    """Create such an object for a job and return its uid."""
    made = stage.admin.create(resource, foreign_object(resource, key), TENANT)
    return str(made["metadata"]["uid"])


def foreign_scenes(resource: Resource) -> None:
    """Define the scenes of a foreign kind."""
    target = resource_name(resource.group, resource.plural)

    @scene(COORDINATOR, target, "list", "watch")
    def _is_followed(stage: Stage) -> str:
        made_for(stage, resource, stage.job())
        watches = Watches(stage.access.cluster(COORDINATOR), nodes=False, foreign=[resource])
        return stage.trouble(watches._foreign_informer(resource))

    @scene(WORKER, target, "list", "watch")
    def _a_workers_own(stage: Stage) -> str:
        made_for(stage, resource, stage.job())
        return stage.follow(WORKER, resource)

    @scene(WORKER, target, "create")
    def _is_made(stage: Stage) -> str:
        key = stage.job()
        return stage.apply(key, CreateObject(resource, foreign_object(resource, key)))

    @scene(WORKER, target, "get")
    def _is_there_already(stage: Stage) -> str:
        key = stage.job()
        made_for(stage, resource, key)
        return stage.apply(key, CreateObject(resource, foreign_object(resource, key)))

    @scene(WORKER, target, "delete")
    def _is_not_needed_any_more(stage: Stage) -> str:
        key = stage.job()
        return stage.apply(key, DeleteObject(resource, "train-0", made_for(stage, resource, key)))

    if resource is not RECREATE_REQUESTS:

        @scene(WORKER, target, "patch")
        def _is_resized(stage: Stage) -> str:
            key = stage.job()
            made_for(stage, resource, key)
            return stage.apply(key, PatchObject(resource, "train-0", {"spec": {"minMember": 2}}))


for kind in OTHERS:
    foreign_scenes(kind)


# A worker.


@scene(WORKER, "queues", "get")
def _a_group_waits_for_its_queue(stage: Stage) -> str:
    key = stage.job()
    made_for(stage, POD_GROUPS, key)
    sight = GroupReader(stage.access.cluster(WORKER))
    try:
        (found,) = sight.of(key, "volcano")
    except errors.ClusterError as error:
        return str(error)
    assert found.reason == "GangQueueMissing"
    return ""


@scene(WORKER, "pods", "patch")
def _a_pods_gate_is_opened(stage: Stage) -> str:
    key = stage.job()
    pod(stage, key)
    found = pod_view.trim(stage.admin.get(PODS, "train-master-0", TENANT))
    return stage.apply(key, PatchPodMetadata((found,), {"annotations": {labels.START: "yes"}}))


@scene(WORKER, "events", "create")
def _a_job_is_told_what_happened(stage: Stage) -> str:
    key = stage.job()
    owned = events.manifest(key, EmitEvent("Running", "it runs"), 0.0, owned=True)
    try:
        stage.access.cluster(WORKER).create(EVENTS, owned, TENANT)
    except errors.ClusterError as error:
        return str(error)
    return stage.apply(key, EmitEvent("Restarting", "a pod failed"))


@scene(WORKER, "nodes", "list", "watch")
def _a_workers_nodes(stage: Stage) -> str:
    node(stage)
    return stage.follow(WORKER, NODES)


@scene(WORKER, "torchjobs", "get")
@scene(WORKER, "torchjobs/status", "patch")
@scene(WORKER, "torchjobs/finalizers", "update")
@scene(WORKER, "pods", "create")
def _a_job_gets_its_pods(stage: Stage) -> str:
    return stage.reconcile(stage.job())


@scene(WORKER, "services", "create")
def _a_job_that_may_grow_gets_its_service(stage: Stage) -> str:
    return stage.reconcile(stage.job(only="Worker", torchElasticPolicy=POLICY))


@scene(WORKER, "torchjobs", "delete")
def _a_job_goes_when_its_time_has_come(stage: Stage) -> str:
    ended = {"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"}
    return stage.reconcile(stage.job(ended, ttlSecondsAfterFinished=0))


@scene(WORKER, "pods", "list", "watch")
def _a_workers_cache(stage: Stage) -> str:
    pod(stage, stage.job())
    return stage.trouble(pods_informer(stage.access.cluster(WORKER)))


@scene(WORKER, "tenantqueues", "list", "watch")
def _a_workers_queues(stage: Stage) -> str:
    queue(stage)
    return stage.trouble(queues_informer(stage.access.cluster(WORKER)))


@scene(WORKER, "pods", "get")
def _a_pods_name_is_taken(stage: Stage) -> str:
    key = stage.job()
    pod(stage)
    with contextlib.suppress(NameTaken):
        return stage.reconcile(key)
    return ""


@scene(WORKER, "pods", "delete")
def _a_suspended_job_has_pods(stage: Stage) -> str:
    key = stage.job(suspend=True)
    pod(stage, key)
    return stage.reconcile(key)


@scene(WORKER, "services", "get")
def _a_service_is_there_already(stage: Stage) -> str:
    key = stage.job(only="Worker", torchElasticPolicy=POLICY)
    service(stage, key)
    return stage.reconcile(key)


@scene(WORKER, "services", "delete")
def _a_service_of_an_earlier_job_is_there(stage: Stage) -> str:
    key = stage.job(only="Worker", torchElasticPolicy=POLICY)
    service(stage)
    return stage.reconcile(key)


@scene(WORKER, "poddisruptionbudgets", "create")
def _a_job_refuses_evictions(stage: Stage) -> str:
    return stage.reconcile(stage.job(evictions="Refuse"))


@scene(WORKER, "poddisruptionbudgets", "get")
def _a_budget_is_there_already(stage: Stage) -> str:
    key = stage.job(evictions="Refuse")
    budget(stage, key)
    return stage.reconcile(key)


@scene(WORKER, "poddisruptionbudgets", "delete")
def _a_budget_of_an_earlier_job_is_there(stage: Stage) -> str:
    key = stage.job(evictions="Refuse")
    budget(stage, stage.job(name="another"))
    return stage.reconcile(key)


# Users.


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
    """Return the owner reference of a job that uses an object and does not control it."""
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
    # No node runs the pod, so nobody has its output.
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


def only_forbidden(said: str) -> str:
    """Return the text if it is about a permission, else an empty text. No node runs the pods of these scenes, so a
    missing log is no error here."""
    return said if "not allowed" in said else ""


@scene(WORKER, "namespaces", "get")
def _tell_its_cluster(stage: Stage) -> str:
    return _installation(stage, WORKER)


@scene(DOCTOR, "namespaces", "get")
def _tell_the_cluster_to_redis(stage: Stage) -> str:
    return _installation(stage, DOCTOR)


def _installation(stage: Stage, role: Role) -> str:
    try:
        own_installation.read(stage.access.cluster(role), LEASE_NAMESPACE)
    except errors.ClusterError as error:
        return str(error)
    return ""


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
def _ask_for_the_next_picks(stage: Stage) -> str:
    return only_forbidden(stage.run(USER, "next"))


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


# Queue admins.


@scene(QUEUE_ADMIN, "tenantqueues", "create")
def _create_a_queue(stage: Stage) -> str:
    return stage.run(QUEUE_ADMIN, "queue", "create", TENANT)


@scene(QUEUE_ADMIN, "tenantqueues", "list")
def _list_queues(stage: Stage) -> str:
    return stage.run(QUEUE_ADMIN, "queue", "list")


@scene(QUEUE_ADMIN, "leases", "get")
@scene(QUEUE_ADMIN, "services/proxy", "get")
def _ask_for_figures(stage: Stage) -> str:
    return only_forbidden(stage.run(QUEUE_ADMIN, "queue", "list", code=0))


@scene(QUEUE_ADMIN, "events", "create")
def _create_a_queue_and_tell(stage: Stage) -> str:
    return only_forbidden(stage.run(QUEUE_ADMIN, "queue", "create", TENANT, code=0))


@scene(QUEUE_ADMIN, "tenantqueues", "patch")
def _pause_a_queue(stage: Stage) -> str:
    queue(stage)
    return stage.run(QUEUE_ADMIN, "queue", "pause", TENANT)


@scene(QUEUE_ADMIN, "tenantqueues", "get", "delete")
@scene(QUEUE_ADMIN, "torchjobs", "list")
def _delete_a_queue(stage: Stage) -> str:
    queue(stage)
    return stage.run(QUEUE_ADMIN, "queue", "delete", TENANT)


@scene(QUEUE_ADMIN, "tenantqueues", "watch")
def _kubectl_get_queues_watch(stage: Stage) -> str:
    queue(stage)
    return stage.follow(QUEUE_ADMIN, TENANT_QUEUES)


# The doctor.


class Nothing:
    """An empty store and work queue, since the scenes with it read the cluster only."""

    def inspect(self) -> None:
        """Return None; see Collector."""

    def snapshot(self, *_: object) -> None:
        """Raise StoreLost; see ReasonWriter."""
        raise StoreLost("nothing is in here")


@scene(DOCTOR, "torchjobs", "list")
@scene(DOCTOR, "tenantqueues", "list")
@scene(DOCTOR, "priorityclasses", "list")
@scene(DOCTOR, "namespaces", "list")
@scene(DOCTOR, "resourcequotas", "list")
@scene(DOCTOR, "pods", "list")
@scene(DOCTOR, "nodes", "list")
@scene(DOCTOR, "configmaps", "list")
@scene(DOCTOR, "leases", "get")
def _look_at_everything(stage: Stage) -> str:
    stage.job()
    looker = Collector(stage.access.cluster(DOCTOR), Nothing(), Nothing(), LEASE_NAMESPACE)  # type: ignore[arg-type]
    try:
        return looker.collect().cluster.strays.unread
    except errors.ClusterError as error:
        return str(error)


@scene(DOCTOR, "leases", "patch")
def _ask_the_leader(stage: Stage) -> str:
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": LEASE}}
    stage.admin.create(LEASES, body | {"spec": {"holderIdentity": "somebody"}}, LEASE_NAMESPACE)
    try:
        rebuild_request.request_rebuild(stage.access.cluster(DOCTOR), LEASE, LEASE_NAMESPACE, seconds=0.0)
    except rebuild_request.RebuildNotDone:  # the request was made; no leader runs here to answer it
        return ""
    except errors.ClusterError as error:
        return str(error)
    return ""


# The account that restores a backup.


def saved_job(uid: str) -> Manifest:
    """Return a finished job as a backup has it."""
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


def saved_code() -> tuple[Manifest, Manifest]:
    """Return a waiting job as a backup has it, and the ConfigMap with its code."""
    archive = code_stores.code(b"pass")
    [part] = config_maps.manifests(archive, 1, TENANT)
    body = saved_job("old") | {"status": {"phase": "Queued"}}
    pod = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [mount.volume for mount in config_maps.source(archive, 1).mounts]
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
    return _installation(stage, RESTORE)


@scene(RESTORE, "leases", "get")
@scene(RESTORE, "services/proxy", "get")
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
