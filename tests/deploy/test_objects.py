"""The content of the chart's objects beside what all checks demand: accounts, access to ports, values that reach
pods.
"""

import ipaddress
import json
from typing import Any

import pytest
import yaml
from click import Context

from coordinator.access.readers import AUDIENCE, TOKEN_SECONDS
from coordinator.cli import main
from coordinator.rbac import account_manifests
from coordinator.rbac.account_manifests import RoleNames, Tenant
from coordinator.rbac.permissions import COORDINATOR, DASHBOARD, DOCTOR, QUEUE_ADMIN, RECORDER, USER, WORKER, Role
from crds import generate as crds
from crds import labels
from deploy import chart, generate
from deploy.checks.objects import describe, pods
from deploy.checks.pod_specs import environment

PROCESSES = [COORDINATOR, WORKER]
ACCESS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def rendered(values: dict[str, Any] | None = None, **options: str) -> dict[str, Any]:
    return {describe(each): each for each in chart.render(values, **options)}


@pytest.fixture(scope="module")
def defaults() -> dict[str, Any]:
    return rendered()


@pytest.fixture(scope="module")
def recording() -> dict[str, Any]:
    return rendered({"recorder": {"enabled": True}})


@pytest.fixture(scope="module")
def showing() -> dict[str, Any]:
    values = {"dashboard": {"enabled": True, "ingress": {"host": "jobs.example.org"}}, "recorder": {"enabled": True}}
    return rendered(values | {"networkPolicy": {"egress": {"enabled": True}}})


def _template(found: dict[str, Any], component: str) -> Any:
    return found[f"Deployment torchq-system/torchq-{component}"]["spec"]["template"]


def _content(document: Any) -> Any:
    """Return what an object grants: its rules, role and subjects."""
    return {key: value for key, value in document.items() if key in ("rules", "roleRef", "subjects")}


def test_the_chart_grants_what_torchq_rbac_prints(showing: dict[str, Any]) -> None:
    for role in (COORDINATOR, WORKER, RECORDER, DASHBOARD, USER):
        printed = {describe(each): each for each in account_manifests.role_manifests(role, RoleNames())}
        for name in (name for name in printed if name.startswith(ACCESS)):
            assert _content(showing[name]) == _content(printed[name]), name
    [admin] = account_manifests.role_manifests(QUEUE_ADMIN, RoleNames())
    assert _content(showing["ClusterRole torchq-queue-admin"]) == _content(admin)


def test_without_a_recorder_nothing_of_it_is_made(defaults: dict[str, Any], recording: dict[str, Any]) -> None:
    assert not [name for name in defaults if "torchq-recorder" in name]
    assert {name for name in recording if name not in defaults} == {
        *(f"{kind} torchq-system/torchq-recorder" for kind in ("ServiceAccount", "Deployment", "Service")),
        *(f"{kind} torchq-system/torchq-recorder" for kind in ("PersistentVolumeClaim", "PodDisruptionBudget")),
        *(f"{kind} torchq-recorder" for kind in ("ClusterRole", "ClusterRoleBinding")),
        *(f"{kind} kube-system/torchq-recorder" for kind in ("Role", "RoleBinding")),
        "NetworkPolicy torchq-system/torchq-recorder",
        "Service torchq-system/torchq-recorder-metrics",
    }


def test_one_recorder_has_sqlite_on_a_volume_that_stays(recording: dict[str, Any]) -> None:
    deployment = recording["Deployment torchq-system/torchq-recorder"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = _template(recording, "recorder")["spec"]
    [volume] = pod["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "torchq-recorder"}, "and no Secret of Redis"
    assert "initContainers" not in pod
    claim = recording["PersistentVolumeClaim torchq-system/torchq-recorder"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_several_recorders_have_a_postgresql_whose_tables_are_brought_up_to_date_first() -> None:
    found = rendered({"recorder": {"enabled": True, "replicas": 2, "database": {"existingSecret": "ours"}}})
    assert "strategy" not in found["Deployment torchq-system/torchq-recorder"]["spec"]
    pod = _template(found, "recorder")["spec"]
    [migrate], [own] = pod["initContainers"], pod["containers"]
    assert (migrate["args"], own["args"]) == (["history", "migrate"], ["recorder"])
    place = {"name": "TORCHQ_HISTORY_URL_FILE", "value": "/etc/torchq/history/url"}
    assert place in migrate["env"]
    assert place in own["env"]
    assert [volume["secret"]["secretName"] for volume in pod["volumes"]] == ["ours"]
    assert not [name for name in found if name.startswith("PersistentVolumeClaim")]


def test_a_dashboard_asks_with_a_token_that_no_api_server_takes(showing: dict[str, Any]) -> None:
    pod = _template(showing, "dashboard")["spec"]
    [volume], [container] = pod["volumes"], pod["containers"]
    [source] = volume["projected"]["sources"]
    assert source["serviceAccountToken"] == {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    [mount] = container["volumeMounts"]
    [dashboard] = [each for each in pods(showing.values()) if each.component == "dashboard"]
    given = environment(dashboard, showing.values())
    assert given["TORCHQ_DASHBOARD_TOKEN_FILE"] == f"{mount['mountPath']}/token"
    assert container["args"] == ["dashboard", "serve"]


def test_a_dashboard_knows_its_name_and_whom_to_ask(showing: dict[str, Any]) -> None:
    def given(found: dict[str, Any]) -> dict[str, str]:
        [pod] = [each for each in pods(found.values()) if each.component == "dashboard"]
        return environment(pod, found.values())

    variables = given(showing)
    assert variables["TORCHQ_COORDINATOR"] == "http://torchq-coordinator.torchq-system.svc:8080"
    assert variables["TORCHQ_DASHBOARD_RECORDER"] == "http://torchq-recorder.torchq-system.svc:8080"
    assert variables["TORCHQ_DASHBOARD_HOSTS"] == "jobs.example.org"
    assert variables["TORCHQ_DASHBOARD_ACTIONS"] == "false"
    bare = rendered({"dashboard": {"enabled": True, "actions": True}})
    assert given(bare)["TORCHQ_DASHBOARD_RECORDER"] == ""
    assert given(bare)["TORCHQ_DASHBOARD_ACTIONS"] == "true"
    assert not [name for name in bare if name.startswith("Ingress") or "dashboard-history" in name]


def test_a_browser_that_is_not_told_otherwise_comes_by_tls(showing: dict[str, Any]) -> None:
    assert showing["Ingress torchq-system/torchq-dashboard"]["spec"]["tls"] == [{"hosts": ["jobs.example.org"]}]
    tls = {"secretName": "ours"}
    named = rendered({"dashboard": {"enabled": True, "ingress": {"host": "jobs.example.org", "tls": tls}}})
    [found] = named["Ingress torchq-system/torchq-dashboard"]["spec"]["tls"]
    assert found["secretName"] == "ours"


def test_the_dashboard_alone_gets_past_the_policies_of_those_whom_it_asks(showing: dict[str, Any]) -> None:
    own = showing["NetworkPolicy torchq-system/torchq-dashboard"]["spec"]
    assert own["ingress"] == [{"ports": [{"protocol": "TCP", "port": "pages"}]}], "the pages ask for a login"
    for component, name in (("coordinator", "asks"), ("recorder", "history")):
        spec = showing[f"NetworkPolicy torchq-system/torchq-dashboard-{name}"]["spec"]
        assert spec["podSelector"] == showing[f"NetworkPolicy torchq-system/torchq-{component}"]["spec"]["podSelector"]
        [rule] = spec["ingress"]
        assert rule == {"ports": [{"protocol": "TCP", "port": "http"}], "from": [{"podSelector": own["podSelector"]}]}
    names, api, servers = own["egress"]
    assert [names, api] == showing["NetworkPolicy torchq-system/torchq-recorder"]["spec"]["egress"]
    assert [each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in servers["to"]] == [
        "coordinator",
        "recorder",
    ]
    assert [each["port"] for each in servers["ports"]] == [8080]
    controller = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    values = {"dashboard": {"enabled": True}, "networkPolicy": {"dashboardFrom": [controller]}}
    [rule] = rendered(values)["NetworkPolicy torchq-system/torchq-dashboard"]["spec"]["ingress"]
    assert rule["from"] == [controller]


def test_a_tenant_gets_what_torchq_rbac_prints() -> None:
    tenant = {"namespace": "team-a", "queue": "shared", "users": ["ann"], "groups": ["crew"]}
    found = rendered({"tenants": [tenant]}, release="mine", namespace="batch")
    services = {"service": "mine-torchq-coordinator", "recorder_service": "mine-torchq-recorder"}
    names = RoleNames(**services, user_role="batch:mine-torchq-user")
    printed = account_manifests.tenant_manifests(
        Tenant(namespace="team-a", queue="shared", users=["ann"], groups=["crew"]), names
    )
    assert len(printed) == 4
    for each in printed:
        assert _content(found[describe(each)]) == _content(each), describe(each)


def test_workers_of_some_namespaces_get_the_roles_of_torchq_rbac() -> None:
    found = rendered({"rbac": {"workerNamespaces": ["a", "b"]}})
    for each in account_manifests.role_manifests(WORKER, RoleNames(), ("a", "b")):
        if each["kind"] in ACCESS:
            assert _content(found[describe(each)]) == _content(each), describe(each)


def test_the_doctor_reads_the_lease_and_does_not_patch_it() -> None:
    found = rendered({"doctor": {"enabled": True}})
    assert [rule["verbs"] for rule in found["Role kube-system/torchq-doctor"]["rules"]] == [["get"]]
    cluster = {describe(each): each for each in account_manifests.role_manifests(DOCTOR, RoleNames())}
    assert _content(found["ClusterRole torchq-doctor"]) == _content(cluster["ClusterRole torchq-doctor"])


def test_two_releases_share_no_name_outside_their_namespaces() -> None:
    def outside(namespace: str) -> set[str]:
        values = {"settings": {"lease_namespace": namespace}, "crds": {"install": False}}
        found = rendered(values, namespace=namespace)
        return {name for name, each in found.items() if each["metadata"].get("namespace") != namespace}

    assert outside("one")
    assert not outside("one") & outside("two")


@pytest.mark.parametrize("role", PROCESSES, ids=lambda role: role.name)
def test_a_deployment_runs_its_command_under_its_account(defaults: dict[str, Any], role: Role) -> None:
    spec = _template(defaults, role.name)["spec"]
    assert spec["serviceAccountName"] == account_manifests.full_name(role)
    [[command]] = [each["args"] for each in spec["containers"]]
    assert main.main.get_command(Context(main.main), command) is not None
    assert {"command"} & spec["containers"][0].keys() == set(), "the image has no shell"


def test_the_definitions_are_those_of_the_code_and_stay_after_an_uninstall(defaults: dict[str, Any]) -> None:
    for definition in crds.load():
        found = defaults[f"CustomResourceDefinition {definition['metadata']['name']}"]
        assert found["spec"] == definition["spec"]
        assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not any("annotations" in each["metadata"] for each in rendered({"crds": {"keep": False}}).values()
                   if each["kind"] == "CustomResourceDefinition")  # fmt: skip


def test_the_api_server_alone_reaches_the_read_only_api_and_nobody_the_metrics(defaults: dict[str, Any]) -> None:
    [api] = defaults["NetworkPolicy torchq-system/torchq-coordinator"]["spec"]["ingress"]
    assert api["ports"] == [{"protocol": "TCP", "port": "http"}]
    assert api["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]
    worker = defaults["NetworkPolicy torchq-system/torchq-worker"]["spec"]
    assert "ingress" not in worker
    assert worker["policyTypes"] == ["Ingress"], "workers connect to the API server and to Redis"
    ports = [port["port"] for name, each in defaults.items() if name.startswith("NetworkPolicy")
             for rule in each["spec"].get("ingress", ()) for port in rule["ports"]]  # fmt: skip
    assert "metrics" not in ports


@pytest.mark.parametrize("component", ["coordinator", "worker", "recorder", "dashboard"])
def test_prometheus_reaches_the_metrics_once_its_namespace_is_named(component: str) -> None:
    home = {"kubernetes.io/metadata.name": "monitoring"}
    more = {each: {"enabled": True} for each in ("recorder", "dashboard")}
    found = rendered({"networkPolicy": {"metrics": {"namespaceLabels": home}}, **more})
    spec = found[f"NetworkPolicy torchq-system/torchq-{component}-metrics"]["spec"]
    [rule] = spec["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    pods = {"app.kubernetes.io/name": "prometheus"}
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": home}, "podSelector": {"matchLabels": pods}}]
    others = found[f"NetworkPolicy torchq-system/torchq-{component}"]["spec"]
    assert spec["podSelector"] == others["podSelector"]
    off = rendered({"networkPolicy": {"metrics": {"namespaceLabels": home}}, "metrics": {"enabled": False}, **more})
    assert f"NetworkPolicy torchq-system/torchq-{component}-metrics" not in off


def test_addresses_of_the_api_server_and_other_sources_are_let_in() -> None:
    extra = {"podSelector": {"matchLabels": {"app": "dashboard"}}}
    api = {"cidrs": ["10.0.0.2/32", "fd00::2/128"], "namespaceLabels": None}
    found = rendered({"networkPolicy": {"apiServer": api, "apiFrom": [extra]}, "metrics": {"enabled": False}})
    [rule] = found["NetworkPolicy torchq-system/torchq-coordinator"]["spec"]["ingress"]
    *blocks, last = rule["from"]
    assert [str(ipaddress.ip_network(each["ipBlock"]["cidr"])) for each in blocks] == ["10.0.0.2/32", "fd00::2/128"]
    assert last == extra


def test_a_policy_without_any_source_lets_nobody_in() -> None:
    nobody = {"networkPolicy": {"apiServer": {"namespaceLabels": None}}, "metrics": {"enabled": False}}
    for name in ("coordinator", "worker"):
        spec = rendered(nobody)[f"NetworkPolicy torchq-system/torchq-{name}"]["spec"]
        assert "ingress" not in spec
        assert spec["policyTypes"] == ["Ingress"]


def test_pods_connect_to_names_the_api_server_and_redis_alone_where_egress_is_restricted() -> None:
    more = {"to": [{"ipBlock": {"cidr": "10.2.0.9/32"}}], "ports": [{"protocol": "TCP", "port": 26379}]}
    database = {"to": [{"ipBlock": {"cidr": "10.2.0.8/32"}}], "ports": [{"protocol": "TCP", "port": 5432}]}
    egress = {"enabled": True, "more": [more], "recorder": [database]}
    policy = {"egress": egress, "apiServer": {"cidrs": ["10.0.0.2/32"]}}
    found = rendered({"networkPolicy": policy, "doctor": {"enabled": True}, "recorder": {"enabled": True}})
    specs = {name.rpartition("-")[2]: each["spec"] for name, each in found.items() if name.startswith("NetworkPolicy")}
    names, api, redis, last = specs["worker"]["egress"]
    assert names == {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    assert api["to"] == [{"ipBlock": {"cidr": "10.0.0.2/32"}}]
    assert [each["port"] for each in api["ports"]] == [443, 6443]
    [peer] = redis["to"]
    assert peer["podSelector"] == specs["redis"]["podSelector"]
    assert [each["port"] for each in redis["ports"]] == [6379]
    assert last == more
    for name in ("coordinator", "doctor"):
        assert specs[name]["egress"] == specs["worker"]["egress"]
    restricted = {name for name, spec in specs.items() if "Egress" in spec["policyTypes"]}
    assert specs["recorder"]["egress"] == [names, api, database], "a recorder has no part in Redis"
    assert restricted == {"coordinator", "worker", "recorder", "doctor", "redis"}
    assert "egress" not in specs["redis"], "Redis connects to nothing"
    unknown = rendered({"networkPolicy": {"egress": {"enabled": True}}})
    _, api, _ = unknown["NetworkPolicy torchq-system/torchq-worker"]["spec"]["egress"]
    assert "to" not in api, "without addresses of the API server, its ports are open"


def test_a_spread_that_is_required_keeps_pods_of_one_revision_apart(defaults: dict[str, Any]) -> None:
    [wish] = _template(defaults, "worker")["spec"]["topologySpreadConstraints"]
    assert (wish["whenUnsatisfiable"], "matchLabelKeys" in wish) == ("ScheduleAnyway", False)
    found = rendered({"worker": {"spreadRequired": True}})
    [rule] = _template(found, "worker")["spec"]["topologySpreadConstraints"]
    assert rule == wish | {"whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["pod-template-hash"]}
    assert _template(found, "coordinator") == _template(defaults, "coordinator")


def test_the_bundled_redis_has_a_priority_class_unless_a_value_names_one(defaults: dict[str, Any]) -> None:
    def classes(found: dict[str, Any]) -> tuple[list[str], str | None]:
        made = [each["metadata"]["name"] for each in found.values() if each["kind"] == "PriorityClass"]
        return made, _template(found, "redis")["spec"].get("priorityClassName")

    assert classes(defaults) == (["torchq-redis"], "torchq-redis")
    assert defaults["PriorityClass torchq-redis"]["value"] > 0
    assert classes(rendered({"redis": {"priorityClassName": "mine"}})) == ([], "mine")
    assert classes(rendered({"redis": {"priorityClass": {"create": False}}})) == ([], None)


def test_images_are_named_by_their_digest_where_one_is_given() -> None:
    digests = {"worker": "sha256:" + "a" * 64, "redis": "sha256:" + "b" * 64}
    given = {"digest": digests["worker"], "tag": "1.2.3"}
    values = {"image": given, "doctor": {"enabled": True}, "redis": {"image": {"digest": digests["redis"]}}}
    for each in pods(chart.render(values)):
        wanted = f"redis@{digests['redis']}" if each.component == "redis" else f"torchq@{digests['worker']}"
        assert {container["image"] for container in each.containers} == {wanted}


def test_pods_of_jobs_reach_the_port_for_reports_at_the_address_that_they_get() -> None:
    found = rendered(release="mine", namespace="batch")
    by_component = {each.component: each for each in pods(found.values())}
    given = environment(by_component["worker"], found.values())
    assert given["TORCHQ_REPORT_URL"] == "http://mine-torchq-coordinator.batch.svc:8090"
    service = found["Service batch/mine-torchq-coordinator"]
    assert 8090 in [each["port"] for each in service["spec"]["ports"]]
    [rule] = found["NetworkPolicy batch/mine-torchq-reports"]["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "reports"}], "the read-only API stays closed"
    jobs = {"matchExpressions": [{"key": labels.JOB_UID, "operator": "Exists"}]}
    assert rule["from"] == [{"namespaceSelector": {}, "podSelector": jobs}]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("pool_patience", 1_000_000, "1000000"),
        ("queued_after", 0.25, "0.25"),
        ("lease_seconds", 20.0, "20"),
        ("implicit_queues", False, "false"),
        ("autoscale", False, "off"),
        ("autoscale", "on", "on"),
        ("cost", "nvidia.com/gpu", "nvidia.com/gpu"),
        ("topology_labels", "", ""),
    ],
)
def test_a_setting_reaches_both_processes_as_its_variable(name: str, value: object, text: str) -> None:
    found = rendered({"settings": {name: value}})
    for each in pods(found.values()):
        if each.component in ("coordinator", "worker"):
            assert environment(each, found.values())[f"TORCHQ_{name.upper()}"] == text


def test_a_changed_setting_rolls_the_pods_and_nothing_else_does(defaults: dict[str, Any]) -> None:
    changed, same = rendered({"settings": {"threads": 8}}), rendered({"worker": {"replicas": 7}})
    for each in ("coordinator", "worker"):
        assert _template(changed, each) != _template(defaults, each)
        assert _template(same, each) == _template(defaults, each)


def test_pods_of_jobs_are_not_picked_by_any_policy_of_the_chart(defaults: dict[str, Any]) -> None:
    for each in defaults.values():
        if each["kind"] == "NetworkPolicy":
            assert "app.kubernetes.io/instance" in each["spec"]["podSelector"]["matchLabels"]


def test_alerts_get_the_values_the_runbooks_and_the_doctor_of_the_release() -> None:
    chosen = {"thresholds": {"backlogJobs": 1_000_000, "overQuotaFor": "2d"}, "runbooks": "https://example.com/docs/"}
    rule = {"metrics": {"prometheusRule": {"enabled": True, **chosen}}, "fullnameOverride": "batches"}
    found = rendered(rule)["PrometheusRule torchq-system/batches"]["spec"]
    original = yaml.safe_load((generate.MONITORING / "rules.yaml").read_text())
    assert [each["name"] for each in found["groups"]] == [each["name"] for each in original["groups"]]
    alerts = {each["alert"]: each for group in found["groups"] for each in group["rules"]}
    text = json.dumps(alerts)
    assert "> 1000000 # value: backlogJobs" in text
    assert '"for": "2d"' in text
    assert "https://example.com/docs/alerts.md#torchqbacklog" in text
    assert ": docs/" not in yaml.safe_dump(alerts)
    assert 'cronjob="batches-doctor"' in alerts["TorchqDisagree"]["expr"]
    assert "{{ $labels.cronjob }}" in text, "Prometheus fills the label in, not Helm"


def test_the_board_and_the_default_rules_are_those_of_deploy_monitoring() -> None:
    found = rendered({"metrics": {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}})
    board = found["ConfigMap torchq-system/torchq-dashboards"]
    assert json.loads(board["data"]["torchq.json"]) == json.loads((generate.MONITORING / "board.json").read_text())
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    text = (generate.MONITORING / "rules.yaml").read_text().replace('=~"(.+-)?torchq-doctor"', '="torchq-doctor"')
    assert found["PrometheusRule torchq-system/torchq"]["spec"] == yaml.safe_load(text)


def test_the_bundled_redis_is_off_once_a_secret_names_another_one() -> None:
    found = rendered({"redis": {"existingSecret": "mine"}})
    assert not [name for name in found if name.endswith("torchq-redis")]
    [volume] = [each for each in _template(found, "worker")["spec"]["volumes"] if each["name"] == "redis"]
    assert volume["secret"] == {"secretName": "mine", "defaultMode": 0o440}, (
        "the volume has the other keys of the secret, such as ca.crt"
    )


def test_the_bundled_redis_has_one_pod_and_nothing_to_keep(defaults: dict[str, Any]) -> None:
    spec = defaults["Deployment torchq-system/torchq-redis"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert [[*each] for each in spec["template"]["spec"]["volumes"]] == [["name", "secret"]]
    arguments = spec["template"]["spec"]["containers"][0]["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert (options["--save"], options["--appendonly"], options["--maxmemory-policy"]) == ("", "no", "noeviction")


def test_a_render_without_a_cluster_holds_no_password_and_coordinators_make_it(defaults: dict[str, Any]) -> None:
    secrets = [each for each in defaults.values() if each["kind"] == "Secret"]
    assert sorted(each["metadata"]["name"] for each in secrets) == ["torchq-redis", "torchq-reports"]
    assert not any("data" in each or "stringData" in each for each in secrets), "each render would have another value"
    [container] = _template(defaults, "coordinator")["spec"]["initContainers"]
    assert container["args"] == [
        *("--namespace", "torchq-system", "fill-secrets"),
        *("--redis", "torchq-redis", "--wait-for", "/etc/torchq/redis/url"),
        *("--reports", "torchq-reports", "--wait-for", "/etc/torchq/reports/key"),
    ]
    optional = {name: [each["secret"].get("optional", False) for each in _template(defaults, name)["spec"]["volumes"]]
                for name in ("coordinator", "worker", "redis")}  # fmt: skip
    assert optional == {"coordinator": [True, True], "worker": [False, False], "redis": [False]}, (
        "the other pods wait for the Secrets"
    )


def test_coordinators_fill_no_secret_of_somebody_else() -> None:
    found = rendered({"redis": {"existingSecret": "mine"}})
    [container] = _template(found, "coordinator")["spec"]["initContainers"]
    assert "--redis" not in container["args"]
    [rule] = found["Role torchq-system/torchq-secrets"]["rules"]
    assert rule["resourceNames"] == ["torchq-reports"]
    nothing = rendered({"redis": {"existingSecret": "mine"}, "reports": {"existingSecret": "tokens"}})
    assert "initContainers" not in _template(nothing, "coordinator")["spec"]
    assert "Role torchq-system/torchq-secrets" not in nothing
