"""The stage of a scene: an API server with a job, the accounts that act on it, and what a scene may find there.

One rule: a scene returns the text that a user would read: the output of a command, the log, or the health of a process.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coordinator.access.readers import ACCOUNT, AUDIENCE, TOKEN_SECONDS
from coordinator.access.token_reviews import TokenReviews
from coordinator.cache import optional_kinds, own_installation
from coordinator.cli import main, session
from coordinator.leader.election import SERVICE_ANNOTATION
from coordinator.rbac.account_manifests import LEASE_NAMESPACE
from coordinator.rbac.permissions import RECORDER_LEASE, WORKER, Role
from crds import labels
from crds.api_resources import (
    ALPHA_POD_GROUPS,
    ALPHA_RECREATE_REQUESTS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    TENANT_QUEUES,
    TORCHJOBS,
    Resource,
)
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from queues.errors import StoreLost
from queues.tasks import Task
from queues.values import Reservation
from reconcilers.apply.apply import Application
from reconcilers.observe import pods_informer
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    Plan,
)
from tests.support.acceptance.stack import until
from tests.support.coordinator.desk import manifest, task
from tests.support.kubectl.command import Kubectl
from tests.support.rbac.access import TENANT, Access, Gated

SYNC_SECONDS = 60.0
OTHERS = tuple(each for each in optional_kinds.KINDS if each not in (ALPHA_POD_GROUPS, ALPHA_RECREATE_REQUESTS))
"""All foreign kinds. One version of each kind is enough."""

POLICY = {"mode": "InPlaceRestart"}
"""An elastic policy without a rendezvous store: the first worker has a service to which the other workers connect."""


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
        """Let a worker reconcile the job once. Return the error, or an empty text."""
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
        """Let a worker carry out a plan. Return its error and its log."""
        cluster, settings = self.access.cluster(WORKER), ReconcileSettings()
        with ThreadPoolExecutor(1) as threads, self.log.at_level(logging.DEBUG, "reconcilers"):
            work = Application(cluster, settings, threads, time.time, key, lambda: True, lambda *_: "")
            try:
                outcome = work.run(Plan(actions))
            except errors.ClusterError as error:
                return str(error)
        return str(outcome.error or "") + self.log.text

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
        """Run kubectl under an account, with an elastic job in the tenant's namespace. Return the error; empty if
        kubectl succeeds.
        """
        if not shutil.which("kubectl"):
            pytest.skip("kubectl is not on PATH")
        body = manifest("train", TENANT, torchElasticPolicy={}, suspend=True)
        self.admin.create(TORCHJOBS, body, TENANT)
        with self.access.config(role, self.folder) as kubeconfig:
            said = Kubectl(kubeconfig, self.folder, TENANT).try_run(*arguments)
        return "" if said.code == 0 else said.err

    def follow(self, role: Role, resource: Resource, namespace: str = "") -> str:
        """Run an informer of this account. Return its error; empty if the informer follows its objects."""
        informer = Informer(self.access.cluster(role), resource, trim=lambda each: each, namespace=namespace)
        return self.trouble(informer)

    def trouble(self, informer: Informer[Any]) -> str:
        """Return the error of the informer, or an empty text once its watch has shown a change."""
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
    """Create a pod of a job, or a pod without an owner."""
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
    """Create a disruption budget with the name of the first budget that a job needs."""
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


def only_forbidden(said: str) -> str:
    """Return the text if it is about a permission, else an empty text. No node runs the pods of these scenes, so a
    missing log is no error here."""
    return said if "not allowed" in said else ""


def ask_recorder(stage: Stage, role: Role) -> str:
    """Ask for the history under an account. Return what is not allowed, or an empty text."""
    announce_recorder(stage.admin)
    return only_forbidden(stage.run(role, "history"))


def announce_recorder(admin: Cluster) -> None:
    """Create the Lease of recorders that answer behind a Service."""
    notes = {SERVICE_ANNOTATION: "torchq-system/torchq-recorder"}
    metadata = {"name": RECORDER_LEASE, "annotations": notes}
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
    admin.create(LEASES, body | {"spec": {}}, LEASE_NAMESPACE)


def installation(stage: Stage, role: Role) -> str:
    """Read the owner of the installation under an account. Return the error, or an empty text."""
    try:
        own_installation.read(stage.access.cluster(role), LEASE_NAMESPACE)
    except errors.ClusterError as error:
        return str(error)
    return ""


def review(stage: Stage, role: Role) -> str:
    """Look under an account who shows the token of the tenant's users. Return the error, or an empty text."""
    token = stage.admin.account_token(TENANT, ACCOUNT, AUDIENCE, TOKEN_SECONDS)  # type: ignore[attr-defined]
    try:
        reader = TokenReviews(stage.access.cluster(role)).reader(token)
    except errors.ClusterError as error:
        return str(error)
    assert reader is not None
    assert reader.may_read(TENANT)
    return ""


class Nothing:
    """An empty store and work queue. The scenes that use it read only the cluster."""

    def inspect(self) -> None:
        """Return None; see Collector."""

    def snapshot(self, *_: object) -> None:
        """Raise StoreLost; see ReasonWriter."""
        raise StoreLost("nothing is in here")
