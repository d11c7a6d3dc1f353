"""Releases on a real API server: install, upgrade, rollback, uninstall, adoption; processes under their accounts."""

import base64
import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from coordinator.access.readers import AUDIENCE
from coordinator.leader.election import API_ANNOTATION, SERVICE_ANNOTATION
from coordinator.local import die_with_parent
from coordinator.rbac.permissions import LEASE, RECORDER_LEASE
from crds.api_resources import CRDS, LEASES, NAMESPACES, PODS, SCALE_INS, SCALE_OUTS, TENANT_QUEUES, TORCHJOBS, Resource
from deploy.chart import ROOT
from deploy.checks.objects import PodTemplate, pods
from deploy.checks.pod_specs import environment
from kube import errors
from kube.client import KubernetesCluster
from tests.support import ports, redis_server
from tests.support.acceptance.stack import clean_environment, run, torchq_command, until
from tests.support.coordinator.dashboard_site import Browser
from tests.support.coordinator.desk import manifest
from tests.support.deploy.helm import Helm, HelmRefused
from tests.support.kube.servers import Server
from tests.support.kubectl.command import Kubectl, needs_kubectl
from tests.support.rbac import access

pytestmark = pytest.mark.apiserver
SECRETS = Resource("", "v1", "secrets", "Secret")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
CLUSTER_ROLES = access.CLUSTER_ROLES
DEFINITION = "torchjobs.train.distributed.io"
TENANT = "team-a"


@pytest.fixture
def helm(bare_server: Server, admin: KubernetesCluster, tmp_path: Path) -> Iterator[Helm]:
    """Return Helm for a release with another name in another namespace. Remove both afterwards."""
    for name in (TENANT, "queues"):
        make_namespace(admin, name)
    made = Helm(bare_server.kubeconfig, tmp_path, "prod", "batch")
    yield made
    for each in admin.list(TORCHJOBS).items if has_definitions(admin) else ():
        admin.delete(TORCHJOBS, each["metadata"]["name"], each["metadata"]["namespace"])
    made.uninstall(anyway=True)
    read_once(admin)
    for each in admin.list(CRDS).items:
        admin.delete(CRDS, each["metadata"]["name"])
    until(lambda: not has_definitions(admin))


def has_definitions(admin: KubernetesCluster) -> bool:
    return any(each["metadata"]["name"] == DEFINITION for each in admin.list(CRDS).items)


def read_once(admin: KubernetesCluster) -> None:
    """Read every kind, so that its storage exists. Without its storage, kube-apiserver may take minutes to delete a
    definition.
    """
    for kind in (TORCHJOBS, TENANT_QUEUES, SCALE_OUTS, SCALE_INS) if has_definitions(admin) else ():
        admin.list(kind)


def make_namespace(admin: KubernetesCluster, name: str, **labels: str) -> None:
    with suppress(errors.AlreadyExists):
        admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    admin.patch(NAMESPACES, name, {"metadata": {"labels": labels}})


def data_of(admin: KubernetesCluster, name: str, namespace: str = "batch") -> dict[str, str]:
    found = admin.get(SECRETS, name, namespace).get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in found.items()}


def test_a_release_is_upgraded_rolled_back_and_removed_while_jobs_and_passwords_stay(
    helm: Helm, admin: KubernetesCluster
) -> None:
    helm.install({"tenants": [{"namespace": TENANT}]})
    until(lambda: served(admin))
    admin.create(TORCHJOBS, manifest("train", TENANT), TENANT)
    made = {name: data_of(admin, f"prod-torchq-{name}") for name in ("redis", "reports")}
    assert re.fullmatch(r"redis://torchq:\w{48}@prod-torchq-redis\.batch\.svc:6379/0", made["redis"]["url"])
    assert len(made["reports"]["key"]) == 48
    spec = admin.get(DEPLOYMENTS, "prod-torchq-coordinator", "batch")["spec"]["template"]["spec"]
    assert "initContainers" not in spec, "Helm knows the cluster, and fills the Secrets itself"

    helm.upgrade({"worker": {"replicas": 5}, "settings": {"threads": 4}})
    assert admin.get(DEPLOYMENTS, "prod-torchq-worker", "batch")["spec"]["replicas"] == 5
    assert {name: data_of(admin, f"prod-torchq-{name}") for name in made} == made
    assert [each for each in admin.list(CLUSTER_ROLES).items if f"-of-{TENANT}" in each["metadata"]["name"]] == []
    helm.rollback(1)
    assert admin.get(DEPLOYMENTS, "prod-torchq-worker", "batch")["spec"]["replicas"] == 2
    assert {name: data_of(admin, f"prod-torchq-{name}") for name in made} == made

    helm.uninstall()
    assert admin.list(DEPLOYMENTS, "batch").items == []
    assert [each["metadata"]["name"] for each in admin.list(TORCHJOBS, TENANT).items] == ["train"]
    assert not [each for each in admin.list(CLUSTER_ROLES).items if "torchq" in each["metadata"]["name"]]


def served(admin: KubernetesCluster, kind: Resource = TORCHJOBS) -> bool:
    try:
        admin.list(kind)
    except errors.NotFound:
        return False
    return True


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "metrics.serviceMonitor.enabled: the cluster has no kind"),
        ({"metrics": {"prometheusRule": {"enabled": True}}}, "metrics.prometheusRule.enabled: the cluster has no kind"),
        ({"tenants": [{"namespace": "nowhere"}]}, "tenants: the cluster has no namespace nowhere"),
        ({"settings": {"lease_namespace": "nowhere"}}, "settings.lease_namespace: the cluster has no namespace"),
        (
            {"redis": {"existingSecret": "own", "existingSecretKey": "dsn"}},
            "redis.existingSecretKey: the Secret own has no key dsn; it has: url",
        ),
        ({"coordinator": {"replicas": 0}}, "/coordinator/replicas"),
    ],
    ids=["ServiceMonitor", "PrometheusRule", "tenant", "Lease", "key", "replicas"],
)
def test_an_install_that_cannot_work_changes_nothing(
    helm: Helm, admin: KubernetesCluster, values: dict[str, Any], said: str
) -> None:
    make_namespace(admin, "batch")
    own = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}, "data": {"url": "eA=="}}
    with suppress(errors.AlreadyExists):
        admin.create(SECRETS, own, "batch")
    with pytest.raises(HelmRefused, match=re.escape(said)):
        helm.install(values)
    assert admin.list(DEPLOYMENTS, "batch").items == []
    assert not has_definitions(admin)


def test_two_releases_stand_side_by_side_and_only_one_has_the_definitions(
    helm: Helm, admin: KubernetesCluster, tmp_path: Path
) -> None:
    helm.install()
    other = Helm(helm.kubeconfig, tmp_path, "prod", "queues")
    with pytest.raises(HelmRefused, match=r"crds\.install: the CustomResourceDefinitions belong to release batch/prod"):
        other.install()
    other.install({"crds": {"install": False}, "settings": {"lease_namespace": "queues"}})
    assert admin.get(DEPLOYMENTS, "prod-torchq-worker", "queues")["spec"]["replicas"] == 2
    assert data_of(admin, "prod-torchq-redis", "queues") != data_of(admin, "prod-torchq-redis")
    other.uninstall()
    assert has_definitions(admin)


def test_a_release_beside_coordinators_that_hold_the_lease_is_refused(helm: Helm, admin: KubernetesCluster) -> None:
    lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "spec": {"holderIdentity": "someone"},
             "metadata": {"name": LEASE, "annotations": {SERVICE_ANNOTATION: "old/torchq-coordinator"}}}  # fmt: skip
    admin.create(LEASES, lease, "queues")
    try:
        said = r"settings\.lease_namespace: .* held by the coordinators of old/torchq.* delete the Lease"
        with pytest.raises(HelmRefused, match=said):
            helm.install({"settings": {"lease_namespace": "queues"}})
    finally:
        admin.delete(LEASES, LEASE, "queues")


def blocks(heading: str) -> list[str]:
    """Return the blocks of commands of a section of the pages for admins."""
    pages = ("operators", "access", "recorder", "dashboard")
    text = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in pages)
    [section] = re.findall(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def in_shell(helm: Helm, folder: Path, script: str) -> None:
    """Run commands of an admin, with torchq and helm on PATH. Only the commands name a namespace."""
    for name, module in (("torchq", "coordinator.cli.main"), ("helm", "tests.support.deploy.command")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        program.chmod(0o755)
    variables = Kubectl(helm.kubeconfig, folder).environment()
    variables["PATH"] = f"{folder}:{variables['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


APPLY = "kubectl apply -k deploy/kustomize/default"


@needs_kubectl
@pytest.mark.parametrize("made_by", ["commands", "kustomize"])
def test_what_kubectl_applied_is_adopted_by_the_commands_of_the_page(
    helm: Helm, admin: KubernetesCluster, tmp_path: Path, made_by: str
) -> None:
    delete_old, own_printed, own_overlay, name_release = blocks("Adopt what kubectl applied")
    is_overlay = made_by == "kustomize"
    apply, own = own_printed.replace("--server-side --force-conflicts --field-manager=helm ", ""), own_printed
    if is_overlay:
        apply, own = (each.replace("kustomize/default", "kustomize/with-recorder") for each in (APPLY, own_overlay))
    in_shell(helm, tmp_path, apply)
    until(lambda: served(admin))
    if is_overlay:
        fill_secrets(admin, helm, tmp_path, "torchq-system", "torchq")
        password = data_of(admin, "torchq-redis", "torchq-system")
    admin.create(TORCHJOBS, manifest("train", TENANT), TENANT)
    release = Helm(helm.kubeconfig, tmp_path)
    with pytest.raises(HelmRefused, match="belong to no release"):
        release.install()
    in_shell(helm, tmp_path, "\n".join([delete_old, own, name_release]))
    release.install({"worker": {"replicas": 3}, "recorder": {"enabled": is_overlay}})
    release.upgrade({"worker": {"replicas": 4}, "image": {"tag": "2"}, "commonLabels": {"team": "ml"}})
    assert admin.get(DEPLOYMENTS, "torchq-worker", "torchq-system")["spec"]["replicas"] == 4
    assert admin.get(CRDS, DEFINITION)["metadata"]["labels"]["team"] == "ml"
    assert not is_overlay or data_of(admin, "torchq-redis", "torchq-system") == password
    release.uninstall()
    assert [each["metadata"]["name"] for each in admin.list(TORCHJOBS, TENANT).items] == ["train"]
    remove_rest(helm, tmp_path)
    if is_overlay:
        admin.delete(CLAIMS, "torchq-recorder", "torchq-system")


def remove_rest(helm: Helm, folder: Path) -> None:
    """Delete what an installation by kubectl leaves behind, except the definitions and the namespace."""
    kinds = "deployment,service,secret,configmap,serviceaccount,poddisruptionbudget,networkpolicy,role,rolebinding"
    wide = "clusterrole,clusterrolebinding,priorityclass,validatingadmissionpolicy,validatingadmissionpolicybinding"
    ours = "-l app.kubernetes.io/part-of=torchq"
    in_shell(
        helm,
        folder,
        f"kubectl delete {wide} {ours}\nkubectl delete {kinds} -A {ours}",
    )


def fill_secrets(admin: KubernetesCluster, helm: Helm, folder: Path, namespace: str, fullname: str) -> None:
    """Run the container that fills the Secrets, since no kubelet runs it. The second run of the container must change
    nothing.
    """
    deployment = admin.get(DEPLOYMENTS, f"{fullname}-coordinator", namespace)
    spec = deployment["spec"]["template"]["spec"]
    server = Server("real", "", "", helm.kubeconfig)
    config = account(admin, server, folder, namespace, spec["serviceAccountName"])
    [container] = spec["initContainers"]
    shown = [str(each).replace("/etc/torchq", str(folder)) for each in container["args"]]
    for part, key in (("redis", "url"), ("reports", "key")):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / key).touch()
    for said in ("filled", "has its value"):
        result = run(*shown, cwd=folder, environment=clean_environment(TORCHQ_KUBECONFIG=str(config)))
        assert result.out == f"secret {fullname}-redis: {said}\nsecret {fullname}-reports: {said}\n", result


def token(admin: KubernetesCluster, namespace: str, name: str, *audiences: str) -> str:
    """Return a token of a ServiceAccount; without audiences, one for the API server."""
    spec = {"expirationSeconds": 7200, "audiences": [*audiences]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    tokens = Resource("", "v1", f"serviceaccounts/{name}/token", "TokenRequest")
    made: str = admin.create(tokens, body, namespace)["status"]["token"]
    return made


def account(admin: KubernetesCluster, server: Server, folder: Path, namespace: str, name: str) -> Path:
    """Return a kubeconfig with a token of a ServiceAccount."""
    config = json.loads(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token(admin, namespace, name)}
    config["contexts"][0]["context"]["namespace"] = namespace
    path = folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


@needs_kubectl
def test_a_second_apply_of_the_overlay_keeps_the_passwords(
    helm: Helm, admin: KubernetesCluster, tmp_path: Path
) -> None:
    in_shell(helm, tmp_path, APPLY)
    fill_secrets(admin, helm, tmp_path, "torchq-system", "torchq")
    password = data_of(admin, "torchq-redis", "torchq-system")
    assert password
    in_shell(helm, tmp_path, APPLY)
    assert data_of(admin, "torchq-redis", "torchq-system") == password
    _, processes, definitions = blocks("Uninstall")
    in_shell(helm, tmp_path, processes)
    assert admin.list(DEPLOYMENTS, "torchq-system").items == []
    assert has_definitions(admin)
    read_once(admin)
    in_shell(helm, tmp_path, definitions)
    until(lambda: not has_definitions(admin))
    remove_rest(helm, tmp_path)


MONITORS = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
RULES = Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")


def serve_monitoring(admin: KubernetesCluster) -> None:
    """Install kinds of the Prometheus Operator that take any object."""
    for each in (MONITORS, RULES):
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": each.version, "served": True, "storage": True, "schema": schema}
        names = {"plural": each.plural, "kind": each.kind}
        spec = {"group": each.group, "scope": "Namespaced", "names": names, "versions": [version]}
        name = {"name": f"{each.plural}.{each.group}"}
        admin.create(CRDS, {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": name, "spec": spec})
    until(lambda: served(admin, MONITORS) and served(admin, RULES))


@needs_kubectl
def test_the_commands_of_the_page_carry_a_release_from_its_install_to_its_end(
    helm: Helm, admin: KubernetesCluster, tmp_path: Path
) -> None:
    words = {"REGISTRY": "registry.example", "VERSION": "0.2.0", "OLDER": "0.1.0"}

    def follow(block: str) -> None:
        """Run a block without the commands that query processes, since no pod runs here."""
        asked = re.sub(r"^(torchq (doctor|status|usage)|kubectl .* rollout status).*\n", "", block, flags=re.MULTILINE)
        in_shell(helm, tmp_path, re.sub("|".join(words), lambda word: words[word[0]], asked))

    def template(name: str) -> Any:
        return admin.get(DEPLOYMENTS, f"torchq-{name}", "torchq-system")["spec"]["template"]

    install, *_, restrict = blocks("Install")
    follow(install)
    follow(restrict)
    follow(blocks("Who may reach what")[0])
    serve_monitoring(admin)
    until(lambda: served(admin, TENANT_QUEUES))
    follow(blocks("Users and queues")[0])
    assert admin.get(TENANT_QUEUES, TENANT)["spec"]["weight"] == 1
    admin.delete(TENANT_QUEUES, TENANT)
    in_shell(helm, tmp_path, f"torchq rbac --tenant {TENANT} | kubectl delete -f -")
    follow(blocks("Monitor")[0])
    assert len(admin.list(MONITORS, "torchq-system").items) == 2
    assert admin.list(RULES, "torchq-system").items
    follow(blocks("Upgrade and roll back")[0])
    assert template("worker")["spec"]["containers"][0]["image"] == "registry.example/torchq:0.1.0"

    for name, commands in zip(("redis", "reports"), blocks("Rotate"), strict=True):
        old, began = data_of(admin, f"torchq-{name}", "torchq-system"), template("worker")["metadata"]["annotations"]
        follow(commands)
        new = data_of(admin, f"torchq-{name}", "torchq-system")
        assert new.keys() == old.keys()
        assert all(new[key] != old[key] for key in new)
        assert template("worker")["metadata"]["annotations"] != began

    (tmp_path / "redis.url").write_text("rediss://redis.example")
    (tmp_path / "ca.crt").write_text("a certificate")
    follow(blocks("A Redis of yours")[0].replace("redis.url", f"{tmp_path}/redis.url").replace(
        "--from-file=ca.crt", f"--from-file={tmp_path}/ca.crt"))  # fmt: skip
    assert {each["secret"]["secretName"] for each in template("worker")["spec"]["volumes"]} == {
        "torchq-own-redis", "torchq-reports"}  # fmt: skip
    _follow_the_recorder(admin, follow, tmp_path)
    _follow_the_dashboard(admin, follow)
    follow(blocks("Several clusters and installations")[0])
    Helm(helm.kubeconfig, tmp_path, "torchq", "queues").uninstall()
    follow(blocks("Uninstall")[0])
    assert has_definitions(admin)
    for name in ("torchq-own-redis", "torchq-history"):
        admin.delete(SECRETS, name, "torchq-system")
    admin.delete(CLAIMS, "torchq-recorder", "torchq-system")


def _follow_the_recorder(admin: KubernetesCluster, follow: Callable[[str], None], folder: Path) -> None:
    """Run the commands of docs/recorder.md: SQLite on a volume, PostgreSQL, and the end."""

    def volume() -> Any:
        spec = admin.get(DEPLOYMENTS, "torchq-recorder", "torchq-system")["spec"]["template"]["spec"]
        return spec["volumes"][0]

    follow(blocks("Install it")[0])
    assert volume()["persistentVolumeClaim"] == {"claimName": "torchq-recorder"}
    follow(blocks("PostgreSQL, and several recorders")[1].replace("history.url", f"{folder}/redis.url").replace(
        "--from-file=ca.crt", f"--from-file={folder}/ca.crt"))  # fmt: skip
    assert volume()["secret"]["secretName"] == "torchq-history"
    assert admin.get(CLAIMS, "torchq-recorder", "torchq-system"), "the history in the volume stays"
    follow(blocks("Switch it off")[0])
    with pytest.raises(errors.NotFound):
        volume()


def _follow_the_dashboard(admin: KubernetesCluster, follow: Callable[[str], None]) -> None:
    """Run the commands of docs/dashboard.md: a dashboard with an Ingress, and an account of an admin for its login."""
    follow(blocks("In a cluster")[0])
    [rule] = admin.get(INGRESSES, "torchq-dashboard", "torchq-system")["spec"]["rules"]
    assert rule["host"] == "torchq.example.org"
    follow(blocks("Logins")[0])
    follow("kubectl delete clusterrolebinding -l app.kubernetes.io/component=queue-admin")


def templates(admin: KubernetesCluster) -> dict[str, PodTemplate]:
    found = [each | {"apiVersion": kind.api_version, "kind": kind.kind}
             for kind in (DEPLOYMENTS, CRON_JOBS) for each in admin.list(kind, "batch").items]  # fmt: skip
    return {each.component: each for each in pods(found)}


def test_pod_security_restricted_admits_every_pod_of_the_chart(helm: Helm, admin: KubernetesCluster) -> None:
    make_namespace(admin, "batch", **{"pod-security.kubernetes.io/enforce": "restricted"})
    helm.install({each: {"enabled": True} for each in ("doctor", "recorder", "dashboard")})
    found = templates(admin)
    assert found.keys() == {"coordinator", "worker", "recorder", "dashboard", "redis", "doctor"}
    for each in found.values():
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": dict(each.spec)}
        admin.create(PODS, body, "batch", dry_run=True)
    as_root = copy.deepcopy(dict(found["redis"].spec))
    as_root["securityContext"]["runAsNonRoot"] = False
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": as_root}
    with pytest.raises(errors.Forbidden, match="runAsNonRoot"):
        admin.create(PODS, body, "batch", dry_run=True)


def test_the_network_policy_lets_in_the_addresses_of_the_api_server(helm: Helm, admin: KubernetesCluster) -> None:
    slices = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
    known = {"apiVersion": slices.api_version, "kind": slices.kind, "metadata": {"name": "kubernetes"},
             "addressType": "IPv4",
             "endpoints": [{"addresses": [each]} for each in ("10.1.2.3", "10.1.2.4")]}  # fmt: skip
    admin.create(slices, known, "default")
    try:
        helm.install()
    finally:
        admin.delete(slices, "kubernetes", "default")
    policies = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
    [api] = admin.get(policies, "prod-torchq-coordinator", "batch")["spec"]["ingress"]
    blocks = [each["ipBlock"]["cidr"] for each in api["from"] if "ipBlock" in each]
    assert blocks == ["10.1.2.3/32", "10.1.2.4/32"]


class Installation:
    """The processes of a release. The tests start these processes with the variables of the release's pods and with
    tokens of its accounts.
    """

    def __init__(self, helm: Helm, admin: KubernetesCluster, folder: Path, redis_url: str, notes: str) -> None:
        self.helm, self.admin, self.folder, self.redis_url, self.notes = helm, admin, folder, redis_url, notes

    def variables(self, component: str, **more: str) -> dict[str, str]:
        """Return the variables of a pod. The files of its Secrets are local files, and every port is on loopback."""
        pod = templates(self.admin)[component]
        maps = [each | {"kind": "ConfigMap"} for each in self.admin.list(CONFIG_MAPS, "batch").items]
        given = environment(pod, maps)
        secrets = {"TORCHQ_REDIS_URL_FILE": self.redis_url, "TORCHQ_REPORT_KEY_FILE": "k" * 48}
        if component == "dashboard":
            secrets["TORCHQ_DASHBOARD_TOKEN_FILE"] = token(self.admin, "batch", "prod-torchq-dashboard", AUDIENCE)
        files = {name: text for name, text in secrets.items() if name in given}
        for name, text in files.items():
            (self.folder / name).write_text(text)
        # 127.0.0.2 is an address of this machine only, which the coordinator does not publish as a URL.
        given |= {name: "127.0.0.2" for name in given if name.endswith("_ADDRESS")}
        history = f"sqlite:///{self.folder}/history.sqlite"
        given |= {name: history for name in given if name == "TORCHQ_HISTORY_URL"}
        given |= {name: "-1" for name in given if name.endswith("_PORT")} | {
            name: str(self.folder / name) for name in files
        }
        config = account(self.admin, Server("real", "", "", self.helm.kubeconfig), self.folder, "batch",
                         pod.spec["serviceAccountName"])  # fmt: skip
        return clean_environment(TORCHQ_KUBECONFIG=str(config), **{**given, **more})

    @contextmanager
    def running(self, component: str, **more: str) -> Iterator[Path]:
        """Run the process of a component, and yield its log."""
        log = self.folder / f"{component}.log"
        pod = templates(self.admin)[component]
        [container] = pod.spec["containers"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                die_with_parent.wrap_command(torchq_command(*container["args"])),
                env=self.variables(component, **more),
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )
            try:
                yield log
            finally:
                process.terminate()
                assert process.wait(60) == 0, log.read_text()[-2000:]


@pytest.fixture
def installation(helm: Helm, admin: KubernetesCluster, tmp_path: Path) -> Iterator[Installation]:
    settings = {"pool": "none", "gang_scheduler": "none"}
    parts = {each: {"enabled": True} for each in ("doctor", "recorder", "dashboard")}
    made = helm.install({"tenants": [{"namespace": TENANT}], "settings": settings, **parts})
    secret = data_of(admin, "prod-torchq-redis")
    accounts = tmp_path / "users.acl"
    accounts.write_text(secret["users.acl"])
    password = secret["url"].split(":")[2].split("@")[0]
    socket = tmp_path / "redis"
    url = f"unix://torchq:{password}@{socket}"
    args = [each for each in templates(admin)["redis"].spec["containers"][0]["args"][2:] if each]
    assert args[0] == "--save"
    with redis_server.running(socket, "--aclfile", str(accounts), *args[1:], url=url):
        yield Installation(helm, admin, tmp_path, url, made["notes"])


@needs_kubectl
def test_the_processes_of_a_release_work_under_its_accounts_and_users_find_them(
    installation: Installation, admin: KubernetesCluster, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        port = str(stack.enter_context(ports.reserve()))
        coordinator = installation.running("coordinator", TORCHQ_HEALTH_PORT=port)
        pages = {"TORCHQ_DASHBOARD_ADDRESS": "127.0.0.1", "TORCHQ_COORDINATOR": f"http://127.0.0.2:{port}"}
        dashboard = installation.running("dashboard", **pages)
        processes = (coordinator, installation.running("worker"), installation.running("recorder"), dashboard)
        logs = [stack.enter_context(each) for each in processes]
        queue = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": TENANT}}
        admin.create(TENANT_QUEUES, queue | {"spec": {"weight": 1}})
        admin.create(TORCHJOBS, manifest("train", TENANT), TENANT)

        def admitted() -> Any:
            job = admin.get(TORCHJOBS, "train", TENANT)
            return (job.get("status") or {}).get("admission") and admin.list(PODS, TENANT).items

        until(admitted)
        notes = admin.get(LEASES, LEASE, "kube-system")["metadata"]["annotations"]
        assert notes[SERVICE_ANNOTATION] == "batch/prod-torchq-coordinator"
        assert API_ANNOTATION not in notes
        until(lambda: annotations(admin, RECORDER_LEASE).get(SERVICE_ANNOTATION) == "batch/prod-torchq-recorder")
        _look_at_the_dashboard(admin, logs[-1])
        [look] = [each for each in blocks("Install") if "get lease" in each]
        in_shell(installation.helm, tmp_path, look.replace("torchq-system", "batch"))
        # No controller lists the pods of the Service here. The API server finds the Service and lets the user pass, but
        # no pod can answer.
        for part in ("coordinator", "recorder"):
            nobody = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": f"prod-torchq-{part}"}}
            admin.create(ENDPOINTS, nobody, "batch")
        [command] = re.findall(r"^ *(torchq rbac --tenant NAMESPACE .*)$", installation.notes, re.MULTILINE)
        in_shell(installation.helm, tmp_path, command.replace("NAMESPACE", "queues"))
        server = Server("real", "", "", installation.helm.kubeconfig)
        for home in (TENANT, "queues"):
            config = account(admin, server, tmp_path, home, "torchq-user")
            for command, part in (("next", "coordinator"), ("usage", "recorder")):
                said = run(command, cwd=tmp_path, environment=clean_environment(TORCHQ_KUBECONFIG=str(config)))
                assert f'no endpoints available for service "prod-torchq-{part}"' in said.err, said
        doctor = run("doctor", cwd=tmp_path, environment=installation.variables("doctor"))
        assert (doctor.code, doctor.out) == (0, "cluster, queues and RQ agree\n"), doctor
        for log in logs:
            assert "not allowed" not in log.read_text()
    admin.delete(TENANT_QUEUES, TENANT)
    for each in admin.list(PODS, TENANT).items:
        admin.delete(PODS, each["metadata"]["name"], TENANT)
    for name in (LEASE, RECORDER_LEASE):
        admin.delete(LEASES, name, "kube-system")


def _look_at_the_dashboard(admin: KubernetesCluster, log: Path) -> None:
    """Log in as users of the tenant do: the dashboard gets its answers from the coordinator, with its own token."""
    found = until(lambda: re.search(r"the pages are at http://127\.0\.0\.1:(\d+)", log.read_text()))
    browser = Browser(int(found[1]))
    made = token(admin, TENANT, "torchq-user")
    assert browser.post("/login", {"token": made, "next": "/"}).code == 303
    until(lambda: f'href="/queues/{TENANT}"' in browser.get("/").text)
    assert "train" in browser.get(f"/jobs/{TENANT}/train").text
    assert made not in log.read_text()


def annotations(admin: KubernetesCluster, lease: str) -> dict[str, str]:
    """Return the annotations of a Lease; none if there is no such Lease yet."""
    try:
        return admin.get(LEASES, lease, "kube-system")["metadata"].get("annotations") or {}
    except errors.NotFound:
        return {}
    admin.delete(ENDPOINTS, "prod-torchq-coordinator", "batch")
