"""The tables of permissions: the files are generated from the tables, the code needs exactly these permissions, and a
missing permission is named.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from coordinator.cli import main
from coordinator.code import config_maps
from coordinator.rbac import account_manifests, preflight
from coordinator.rbac.permissions import (
    COORDINATOR,
    DASHBOARD,
    LEASE,
    QUEUE_ADMIN,
    RECORDER,
    RECORDER_LEASE,
    ROLES,
    STANDING,
    USER,
    WORKER,
    PolicyRule,
    Role,
)
from coordinator.settings import Settings
from crds.api_resources import (
    CONFIG_MAPS,
    EVENTS,
    GANG_QUEUES,
    LEASES,
    MODEL_VERSIONS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    RECREATE_REQUESTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    SERVICES,
    TENANT_QUEUES,
    TORCHJOBS,
)
from kube import errors
from tests.support.coordinator.desk import clear, manifest, remove
from tests.support.rbac.access import FILES, TENANT, Access, Gated, Granted
from tests.support.rbac.gatekeeper import Gatekeeper, of_rule, permissions
from tests.support.rbac.scenes import OTHERS, SCENES, Stage

EACH = [
    pytest.param(role, rule, verb, id=f"{role.name}-{verb}-{of_rule(rule).replace('/', '.')}")
    for role in ROLES.values()
    for rule in role.all_rules()
    for verb in rule.all_verbs
]
PROCESS_ROLES = (COORDINATOR, WORKER, RECORDER, DASHBOARD)
PROCESSES = [each for each in EACH if each.values[0] in PROCESS_ROLES and not each.values[1].optional]
SETTINGS = Settings()


@pytest.fixture
def stage(
    access: Access, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> Iterator[Stage]:
    yield Stage(access, monkeypatch, caplog, tmp_path)
    has = access.server.may_have
    clear(access.admin, has)
    leases = [(LEASES, name, account_manifests.LEASE_NAMESPACE) for name in (LEASE, RECORDER_LEASE)]
    budget, quota = (POD_DISRUPTION_BUDGETS, "train-evictions-1", TENANT), (RESOURCE_QUOTAS, "team", TENANT)
    for kind, name, namespace in (*leases, quota, budget, (NODES, "here", "")):
        if has(kind):
            remove(access.admin, kind, name, namespace)
    for item in access.admin.list(CONFIG_MAPS, TENANT).items:
        if item["metadata"]["name"].startswith(("code", config_maps.PREFIX)):
            remove(access.admin, CONFIG_MAPS, item["metadata"]["name"], TENANT)
    for item in access.admin.list(MODEL_VERSIONS, TENANT).items if has(MODEL_VERSIONS) else ():
        remove(access.admin, MODEL_VERSIONS, item["metadata"]["name"], TENANT)
    for kind in filter(access.admin.serves, filter(has, OTHERS)):
        remove(access.admin, kind, "train-0", TENANT)


def _installed(stage: Stage, rule: PolicyRule) -> None:
    optional = (POD_DISRUPTION_BUDGETS, GANG_QUEUES, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, *OTHERS)
    if rule.resource in optional and not stage.access.admin.serves(rule.resource):
        pytest.skip("the server does not serve it")


def test_every_permission_has_a_scene() -> None:
    assert SCENES.keys() == {(role.name, *asked) for role in ROLES.values() for asked in permissions(role)}


@pytest.mark.parametrize(("role", "rule", "verb"), EACH)
def test_a_missing_permission_is_named_once_with_its_remedy(
    stage: Stage, role: Role, rule: PolicyRule, verb: str
) -> None:
    if isinstance(stage.access, Gated) and rule.subresource == "finalizers":
        pytest.skip("only a real API server asks for it")
    _installed(stage, rule)
    with stage.access.without(role, rule, verb):
        said = SCENES[role.name, of_rule(rule), verb](stage)
    if rule.subresource == "finalizers":
        assert "can't set finalizers" in said
    else:
        assert f'cannot {verb} resource "{rule.target}"' in said
        assert stage.access.name(role) in said
    # kubectl does not name torchq's files.
    assert said.count(role.file) == (0 if rule.subresource == "scale" and verb in rule.by_hand else 1)
    assert "Traceback" not in said


@pytest.mark.parametrize(("role", "rule", "verb"), EACH)
def test_the_granted_permissions_suffice(stage: Stage, role: Role, rule: PolicyRule, verb: str) -> None:
    _installed(stage, rule)
    said = SCENES[role.name, of_rule(rule), verb](stage)
    assert said == ""


@pytest.mark.parametrize(("role", "rule", "verb"), PROCESSES)
def test_a_process_checks_its_permissions_before_it_starts(
    access: Access, role: Role, rule: PolicyRule, verb: str
) -> None:
    preflight.check(access.cluster(role), role, SETTINGS)
    with access.without(role, rule, verb), pytest.raises(preflight.PermissionMissing) as missing:
        preflight.check(access.cluster(role), role, SETTINGS)
    group = f" ({rule.resource.group})" if rule.resource.group else ""
    assert f"not allowed to {verb} {rule.target}{group}" in str(missing.value)
    assert role.file in str(missing.value)


@pytest.mark.parametrize("rule", [each for each in WORKER.all_rules() if each.optional], ids=of_rule)
def test_a_worker_starts_without_an_optional_permission(access: Access, rule: PolicyRule) -> None:
    with access.without(WORKER, rule, *rule.verbs):
        preflight.check(access.cluster(WORKER), WORKER, SETTINGS)


@pytest.mark.parametrize("role", [COORDINATOR, WORKER, RECORDER], ids=lambda role: role.name)
def test_all_missing_permissions_are_named_together(access: Access, role: Role) -> None:
    with pytest.raises(preflight.PermissionMissing) as missing:
        preflight.check(access.cluster(USER), role, SETTINGS)
    lacking = [
        (rule, verb)
        for rule in role.all_rules()
        for verb in rule.verbs
        if (of_rule(rule), verb) not in permissions(USER) and not rule.optional
    ]
    assert all(f"{verb} {rule.target}" in str(missing.value) for rule, verb in lacking)


def test_permission_for_nodes_is_checked_only_if_the_pool_is_nodes() -> None:
    asked = preflight.questions(COORDINATOR, Settings(pool="none"))
    assert NODES not in [rule.resource for rule, _, _ in asked]


def test_a_server_without_access_reviews_does_not_stop_a_process(gated: Gated) -> None:
    preflight.check(gated.admin, COORDINATOR, SETTINGS)


# Requests that accounts may not make.

FORBIDDEN = [
    (USER, "patch", TORCHJOBS, "status"),
    (USER, "create", PODS, ""),
    (USER, "delete", PODS, ""),
    (USER, "list", CONFIG_MAPS, ""),
    (WORKER, "get", CONFIG_MAPS, ""),
    (USER, "create", TENANT_QUEUES, ""),
    (USER, "patch", TENANT_QUEUES, ""),
    (USER, "list", TENANT_QUEUES, ""),
    (QUEUE_ADMIN, "list", PODS, ""),
    (QUEUE_ADMIN, "delete", PODS, ""),
    (QUEUE_ADMIN, "patch", TORCHJOBS, ""),
    (QUEUE_ADMIN, "patch", TENANT_QUEUES, "status"),
    (WORKER, "patch", TENANT_QUEUES, ""),
    (WORKER, "patch", TORCHJOBS, ""),
    (WORKER, "patch", NODES, ""),
    (WORKER, "get", EVENTS, ""),
    (WORKER, "patch", RECREATE_REQUESTS, ""),
    (WORKER, "list", SERVICES, ""),
    (WORKER, "patch", LEASES, ""),
    (COORDINATOR, "create", PODS, ""),
    (COORDINATOR, "delete", PODS, ""),
    (COORDINATOR, "patch", TORCHJOBS, ""),
    (COORDINATOR, "create", POD_GROUPS, ""),
    (COORDINATOR, "patch", TENANT_QUEUES, ""),
    (RECORDER, "patch", TORCHJOBS, "status"),
    (RECORDER, "delete", TORCHJOBS, ""),
    (RECORDER, "delete", PODS, ""),
    (RECORDER, "list", CONFIG_MAPS, ""),
    (DASHBOARD, "list", PODS, ""),
    (DASHBOARD, "list", EVENTS, ""),
    (DASHBOARD, "patch", TORCHJOBS, ""),
    (DASHBOARD, "list", TENANT_QUEUES, ""),
]


@pytest.mark.parametrize(
    ("role", "verb", "resource", "subresource"),
    FORBIDDEN,
    ids=[f"{role.name}-{verb}-{resource.plural}{'.' * bool(sub)}{sub}" for role, verb, resource, sub in FORBIDDEN],
)
def test_roles_may_not_do_the_work_of_other_roles(
    stage: Stage, role: Role, verb: str, resource: object, subresource: str
) -> None:
    cluster = stage.access.cluster(role)
    calls = {
        "get": lambda: cluster.get(resource, "x", TENANT),
        "list": lambda: cluster.list(resource, TENANT),
        "create": lambda: cluster.create(resource, body(resource), TENANT),
        "delete": lambda: cluster.delete(resource, "x", TENANT),
        "patch": lambda: cluster.patch(resource, "x", {"status": {}}, TENANT, subresource=subresource),
    }
    with pytest.raises(errors.Forbidden):
        calls[verb]()


def body(resource: object) -> dict[str, object]:
    named = {"metadata": {"name": "x"}}
    if resource == PODS:
        return {"apiVersion": "v1", "kind": "Pod", **named, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    if resource == POD_GROUPS:
        return {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, **named}
    return {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", **named}


@pytest.mark.apiserver
def test_users_may_access_only_their_namespace_and_their_queue(granted: Granted) -> None:
    user = granted.cluster(USER)
    for call in (
        lambda: user.list(TORCHJOBS, "default"),
        lambda: user.create(TORCHJOBS, manifest("train"), "default"),
        lambda: user.list(TORCHJOBS),
        lambda: user.list(PODS, "kube-system"),
        lambda: user.get(TENANT_QUEUES, "another"),
    ):
        with pytest.raises(errors.Forbidden):
            call()
    with pytest.raises(errors.NotFound):
        user.get(TENANT_QUEUES, TENANT)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("role", "name", "namespace"),
    [
        (COORDINATOR, "another", account_manifests.LEASE_NAMESPACE),
        (COORDINATOR, LEASE, "default"),
        (COORDINATOR, RECORDER_LEASE, account_manifests.LEASE_NAMESPACE),
        (WORKER, LEASE, account_manifests.LEASE_NAMESPACE),
        (WORKER, RECORDER_LEASE, TENANT),
        (RECORDER, "another", account_manifests.LEASE_NAMESPACE),
        (RECORDER, RECORDER_LEASE, "default"),
    ],
)
def test_a_process_may_read_only_the_leases_that_it_needs(
    granted: Granted, role: Role, name: str, namespace: str
) -> None:
    with pytest.raises(errors.Forbidden):
        granted.cluster(role).get(LEASES, name, namespace)


# The files.


def test_the_files_equal_the_output_of_the_tables() -> None:
    written = {str(path.relative_to(FILES)): path.read_text() for path in FILES.rglob("*.yaml")}
    assert written == account_manifests.files(), "run: python -m coordinator.rbac.account_manifests"


def printed(*arguments: str, code: int = 0) -> list[dict[str, object]]:
    result = CliRunner().invoke(main.main, ["rbac", *arguments], prog_name="torchq")
    assert result.exit_code == code, result.output
    return list(yaml.safe_load_all(result.output)) if code == 0 else []


def test_rbac_prints_the_content_of_the_files() -> None:
    for name in STANDING:
        assert printed(name) == list(yaml.safe_load_all((FILES / f"{name}.yaml").read_text()))
    assert printed() == [document for name in STANDING for document in printed(name)]
    assert printed("--restore") == list(yaml.safe_load_all((FILES / "on-request" / "restore.yaml").read_text()))
    assert printed("--tenant", TENANT) == list(yaml.safe_load_all((FILES / "examples" / f"{TENANT}.yaml").read_text()))


def test_roles_of_single_occasions_are_printed_only_when_asked_for() -> None:
    """An upgrade applies the output and the files of the folder again, and would restore roles that an admin has
    removed.
    """
    files = [each for path in FILES.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    for documents in (printed(), files):
        assert {each["metadata"]["name"] for each in documents if each["kind"] != "Namespace"} == {  # type: ignore[index]
            "torchq-coordinator",
            "torchq-worker",
            "torchq-recorder",
            "torchq-dashboard",
            "torchq-user",
            "torchq-doctor",
            "torchq-reader",
        }
    assert {each["metadata"]["name"] for each in printed("--restore")} == {"torchq-system", "torchq-restore"}  # type: ignore[index]


def test_each_queue_admin_has_a_binding_of_its_own() -> None:
    documents = printed("--queue-admin", "ann", "--queue-admin", "https://issuer#bob")
    assert all(each["kind"] in ("ClusterRole", "ClusterRoleBinding") for each in documents), "people need no account"
    bindings = {each["metadata"]["name"]: each for each in documents if "subjects" in each}  # type: ignore[index]
    assert {name: [each["name"] for each in found["subjects"]] for name, found in bindings.items()} == {  # type: ignore[attr-defined]
        "torchq-queue-admin-ann": ["ann"],
        "torchq-queue-admin-https:--issuer#bob": ["https://issuer#bob"],
    }
    assert {each["roleRef"]["name"] for each in bindings.values()} == {"torchq-queue-admin"}  # type: ignore[index]


def test_rbac_places_accounts_in_the_chosen_system_namespace() -> None:
    documents = printed("coordinator", "--system-namespace", "queueing")
    account = next(each for each in documents if each["kind"] == "ServiceAccount")
    assert account["metadata"]["namespace"] == "queueing"  # type: ignore[index]
    subjects = [each["subjects"] for each in documents if "subjects" in each]
    assert len(subjects) == 2
    assert all(found == [{"kind": "ServiceAccount", "name": "torchq-coordinator", "namespace": "queueing"}]
               for found in subjects)  # fmt: skip


def test_rbac_names_the_service_and_the_users_role_of_an_installation() -> None:
    services = ("--service", "batch/mine-coordinator", "--recorder-service", "batch/mine-recorder")
    chosen = ("--tenant", "b", *services, "--user-role", "mine-user")
    documents = printed(*chosen)
    [reader] = [each for each in documents if each["kind"] == "ClusterRole"]
    named = {(rule["resources"][0], *rule["resourceNames"]) for rule in reader["rules"]}  # type: ignore[attr-defined]
    services = {("services/proxy", f"http:mine-{each}:http") for each in ("coordinator", "recorder")}
    assert named == {("tenantqueues", "b"), ("leases", LEASE), ("leases", RECORDER_LEASE), *services}
    roles = {each["roleRef"]["name"] for each in documents if "roleRef" in each}  # type: ignore[index]
    assert roles == {"mine-user", "torchq-queue-b-of-b"}
    [admin, _] = printed("--queue-admin", "ann", "--service", "batch/mine")
    names = [rule["resourceNames"] for rule in admin["rules"] if rule["resources"] == ["services/proxy"]]  # type: ignore[index, attr-defined]
    assert names == [["http:mine:http"], ["http:torchq-recorder:http"]]
    printed("--service", "no-slash", code=1)


def test_every_object_has_the_recommended_labels() -> None:
    parts = ("name", "instance", "version", "component", "part-of", "managed-by")
    for document in [*printed(), *printed("--tenant", "b"), *printed("--restore", "--queue-admin", "ann")]:
        labels = document["metadata"]["labels"]  # type: ignore[index]
        assert labels.keys() == {f"app.kubernetes.io/{part}" for part in parts}, document
        assert all(labels.values())
        assert labels["app.kubernetes.io/part-of"] == "torchq"


def test_rbac_for_a_tenant_binds_users_groups_and_another_queue() -> None:
    documents = printed("--tenant", "b", "--queue", "c", "--user", "ann", "--group", "crew")
    reader = next(each for each in documents if each["kind"] == "ClusterRole")
    assert reader["rules"][0]["resourceNames"] == ["c"]  # type: ignore[index]
    for binding in (each for each in documents if "subjects" in each):
        assert [each["name"] for each in binding["subjects"]] == ["torchq-user", "ann", "crew"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--queue", "a"),
        ("worker", "--tenant", "a"),
        ("nobody",),
        ("restore",),
        ("queue-admin",),
        ("worker", "--restore"),
        ("--restore", "--tenant", "a"),
        ("--restore", "--namespaces", "a"),
        ("--queue-admin", ""),
    ],
    ids=str,
)
def test_rbac_rejects_an_invalid_combination_of_arguments(arguments: tuple[str, ...]) -> None:
    printed(*arguments, code=2)


def test_no_account_may_change_permissions_or_read_secrets() -> None:
    found = {rule.resource.plural for role in ROLES.values() for rule in role.all_rules()}
    assert found == {
        "torchjobs",
        "tenantqueues",
        "scaleouts",
        "scaleins",
        "modelversions",
        "pods",
        "services",
        "poddisruptionbudgets",
        "nodes",
        "leases",
        "priorityclasses",
        "namespaces",
        "resourcequotas",
        "configmaps",
        "tokenreviews",
        "subjectaccessreviews",
        "serviceaccounts",
        "events",
        "resourceclaims",
        "resourceclaimtemplates",
        "podgroups",
        "queues",
        "containerrecreaterequests",
    }
    rules = [rule for role in ROLES.values() for rule in role.all_rules()]
    assert all("*" not in rule.all_verbs for rule in rules)
    tokens = {(rule.subresource, rule.name) for rule in rules if rule.resource == SERVICE_ACCOUNTS}
    assert tokens == {("token", "torchq-user"), ("token", "torchq-reader")}, "these two have no other rights than users"


def test_submit_succeeds_if_the_dry_run_of_a_pod_is_forbidden(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account that may create pods can bypass the queues. Users may not create pods, but they can still submit
    jobs.
    """
    user = stage.access.cluster(USER)
    monkeypatch.setattr(stage.access, "cluster", lambda _: user)
    file = stage.folder / "job.json"
    file.write_text(json.dumps(manifest("train", TENANT)))
    assert stage.run(USER, "submit", str(file), code=0).startswith(f"{TENANT}/train/")
    if isinstance(user, Gatekeeper):
        assert ("pods", "create") in user.requests
    with pytest.raises(errors.Forbidden):
        user.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}}, TENANT, dry_run=True)
