"""The values with which the chart is tried: the values that work, and the values that the chart refuses.

One rule: every value of values.yaml is set by at least one case, and a test compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Values that work."""

    values: Values = field(default_factory=dict)
    release: str = "torchq"
    namespace: str = "torchq-system"
    existing: tuple[str, ...] = ()
    """Accounts, Secrets and claims that somebody else makes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Values that are refused, and words of the message."""

    values: Values
    words: tuple[str, ...]


_PLACE: Values = {
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}]}}},
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"team": "platform"},
    "podAnnotations": {"example.com/note": "yes"},
    "podSecurityContext": {"runAsUser": 1234, "supplementalGroups": [7]},
    "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "torchq.json"}},
    "resources": {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
}  # fmt: skip
_PROCESS: Values = {
    **_PLACE,
    "replicas": 3,
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "spreadRequired": True,
    "startupProbe": {"failureThreshold": 90},
    "livenessProbe": {"periodSeconds": 20, "failureThreshold": 3},
    "readinessProbe": {"periodSeconds": 7},
    "podDisruptionBudget": {"minAvailable": "50%", "maxUnavailable": None},
}
EVERYTHING: Values = {
    "commonLabels": {"cost-center": "a1"},
    "commonAnnotations": {"example.com/owner": "ann"},
    "image": {"registry": "registry.example:5000", "repository": "ml/torchq", "tag": "1.2.3-rc.1",
              "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "coordinator": _PROCESS,
    "worker": {**_PROCESS, "processes": 4, "podDisruptionBudget": {"enabled": True, "maxUnavailable": "34%"}},
    "recorder": {**_PROCESS, "enabled": True, "database": {"existingSecret": "postgres", "existingSecretKey": "dsn"}},
    "dashboard": {**_PROCESS, "enabled": True, "sticky": True, "actions": True,
                  "service": {"annotations": {"example.com/sticky": "cookie"}},
                  "ingress": {"host": "torchq.example.org", "className": "ours",
                              "annotations": {"example.com/affinity": "cookie"},
                              "tls": {"enabled": True, "secretName": "torchq-certificate"}}},
    "settings": {"pool_patience": 1_000_000, "pool": "cpu=64,nvidia.com/gpu=8", "queued_after": 0.25,
                 "implicit_queues": True, "autoscale": False, "drain_seconds": 90, "lease_namespace": "queues"},
    "redis": {**_PLACE, "bundled": True, "maxmemory": "2gb",
              "image": {"registry": "registry.example", "repository": "mirror/redis", "tag": "7.4.2",
                        "digest": "sha256:" + "0" * 64,
                        "pullPolicy": "Always"}},
    "reports": {"enabled": True},
    "rbac": {"create": True, "workerNamespaces": ["team-a", "team-b"],
             "queueAdmins": {"users": ["ann@example.com"], "groups": ["platform"]}, "verifySubmitters": True},
    "serviceAccount": {"annotations": {"example.com/role": "torchq"}},
    "crds": {"install": True, "keep": False},
    "networkPolicy": {"enabled": True, "apiServer": {"cidrs": ["10.0.0.2/32", "fd00::2/128"], "namespaceLabels": None},
                      "metrics": {"namespaceLabels": {"kubernetes.io/metadata.name": "monitoring"}, "podLabels": None},
                      "apiFrom": [{"podSelector": {"matchLabels": {"app": "viewer"}}}],
                      "dashboardFrom": [{"namespaceSelector": {"matchLabels": {"app": "ingress"}}}],
                      "reportsFrom": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
                      "egress": {"enabled": True, "apiServerPorts": [6443],
                                 "more": [{"to": [{"ipBlock": {"cidr": "10.2.0.9/32"}}], "ports": [{"port": 26379}]}],
                                 "recorder": [{"to": [{"ipBlock": {"cidr": "10.2.0.8/32"}}],
                                               "ports": [{"port": 5432}]}]}},
    "metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"},
                "interval": "15s", "scrapeTimeout": "5s"},
                "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"},
                                   "thresholds": {"backlogJobs": 5000}, "runbooks": "https://example.com/docs/"},
                "dashboards": {"enabled": True, "labels": {"grafana_dashboard": "1"}, "annotations": {"folder": "ML"}}},
    "doctor": {"enabled": True, "schedule": "@hourly", "resources": {"limits": {"memory": "512Mi"}}},
    "tenants": [{"namespace": "team-a"},
                {"namespace": "team-b", "queue": "shared", "users": ["ann"], "groups": ["crew"]}],
}  # fmt: skip
_OWN_REDIS: Values = {"existingSecret": "my-redis", "existingSecretKey": "dsn"}

CASES: Mapping[str, Case] = {
    "defaults": Case(),
    "everything": Case(EVERYTHING, existing=("postgres",)),
    "everything, other release and namespace": Case(EVERYTHING, "prod", "ml-batch", existing=("postgres",)),
    "release that contains the name": Case(release="my-torchq", namespace="default"),
    "longest release name": Case(EVERYTHING, "r" + "x" * 51 + "y", "n" * 63, existing=("postgres",)),
    "nameOverride": Case({"nameOverride": "queues"}, "team"),
    "fullnameOverride": Case({"fullnameOverride": "a" * 43}, "team"),
    "release that is a number": Case(release="1234", namespace="5678"),
    "release with a dot": Case(release="team.a"),
    "names that YAML reads as no text": Case(
        {"nameOverride": "null", "rbac": {"workerNamespaces": ["2024"]},
         "tenants": [{"namespace": "2024"}, {"namespace": "true", "queue": "007"}]}, "on", "1e3"
    ),
    "a probe of another kind": Case(
        {"worker": {"livenessProbe": {"httpGet": None, "tcpSocket": {"port": "metrics"}}}}
    ),
    "image by digest": Case({"image": {"digest": "sha256:" + "a" * 64}}),
    "one of each": Case({"coordinator": {"replicas": 1}, "worker": {"replicas": 1, "processes": 1}}),
    "no budgets": Case(
        {each: {"podDisruptionBudget": {"enabled": False}}
         for each in ("coordinator", "worker", "recorder", "dashboard", "redis")}
    ),
    "budgets that keep one": Case(
        {each: {"podDisruptionBudget": {"minAvailable": 1}} for each in ("coordinator", "worker")}
    ),
    "Redis of its own": Case({"redis": _OWN_REDIS}, existing=("my-redis",)),
    "Redis of its own, not bundled": Case({"redis": {**_OWN_REDIS, "bundled": False}}, "q", existing=("my-redis",)),
    "reports with a key of its own": Case(
        {"reports": {"existingSecret": "tokens", "existingSecretKey": "value"}}, existing=("tokens",)
    ),
    "no reports": Case({"reports": {"enabled": False}}),
    "nothing to fill": Case({"reports": {"enabled": False}, "redis": _OWN_REDIS}, existing=("my-redis",)),
    "accounts of somebody else": Case(
        {"serviceAccount": {"create": False, "name": "ours"}, "worker": {"serviceAccount": {"name": "theirs"}}},
        existing=("ours", "theirs"),
    ),
    "one account for both": Case({"serviceAccount": {"name": "ours"}}),
    "an account for coordinators": Case({"coordinator": {"serviceAccount": {"name": "ours"}}}),
    "an account for recorders": Case({"recorder": {"enabled": True, "serviceAccount": {"name": "ours"}}}),
    "no roles": Case({"rbac": {"create": False}}),
    "names that nobody verifies": Case({"rbac": {"verifySubmitters": False}}),
    "connections to what is needed alone": Case({"networkPolicy": {"egress": {"enabled": True}}}),
    "no PriorityClass": Case({"redis": {"priorityClass": {"create": False}}}),
    "no policies": Case({"networkPolicy": {"enabled": False}}),
    "no metrics": Case({"metrics": {"enabled": False}}),
    "no definitions": Case({"crds": {"install": False}}),
    "a recorder": Case({"recorder": {"enabled": True}}),
    "a recorder with a volume of its class": Case(
        {"recorder": {"enabled": True, "persistence": {"size": "1Ti", "storageClass": "fast", "keep": False}},
         "networkPolicy": {"egress": {"enabled": True}}}, "h", "elsewhere"
    ),
    "a recorder with a claim of its own": Case(
        {"recorder": {"enabled": True, "persistence": {"existingClaim": "ours"}}}, existing=("ours",)
    ),
    "two recorders": Case(
        {"recorder": {"enabled": True, "replicas": 2, "database": {"existingSecret": "postgres"}}},
        existing=("postgres",),
    ),
    "a dashboard": Case({"dashboard": {"enabled": True}}),
    "a dashboard at a name, behind an Ingress without TLS": Case(
        {"dashboard": {"enabled": True, "ingress": {"host": "jobs.example.org", "tls": {"enabled": False}}},
         "networkPolicy": {"egress": {"enabled": True}}}, "v", "elsewhere"
    ),
    "an account for dashboards": Case({"dashboard": {"enabled": True, "serviceAccount": {"name": "ours"}}}),
    "doctor alone": Case({"doctor": {"enabled": True}}, "d"),
    "tenants": Case(
        {"tenants": [{"namespace": "team-a"}, {"namespace": "team-b", "queue": "team-a"}]}, "t", "elsewhere"
    ),
}  # fmt: skip


def _at(path: str, value: Any) -> dict[str, Any]:
    key, _, rest = path.partition(".")
    return {key: _at(rest, value) if rest else value}


def _refused(path: str, value: Any, *words: str) -> Refusal:
    return Refusal(_at(path, value), words or tuple(path.split(".")))


REFUSED: Mapping[str, Refusal] = {
    "a misspelt value": _refused("replicas", 2, "replicas"),
    "a misspelt value of a part": _refused("coordinator.replica", 2, "/coordinator", "replica"),
    "no replicas": _refused("coordinator.replicas", 0),
    "a misspelt field of a probe": _refused(
        "worker.livenessProbe.periodSecond", 5, "worker/livenessProbe", "periodSecond"
    ),
    "a misspelt field of an affinity": _refused(
        "coordinator.affinity", {"nodeAffinity": {"required": {}}}, "coordinator/affinity/nodeAffinity", "required"
    ),
    "a misspelt field of a security context": _refused(
        "redis.securityContext.runAsNonroot", True, "redis/securityContext", "runAsNonroot"
    ),
    "a misspelt field of a pod's security context": _refused(
        "worker.podSecurityContext.fsgroup", 7, "worker/podSecurityContext", "fsgroup"
    ),
    "a misspelt field of a peer": _refused(
        "networkPolicy.apiFrom", [{"podSelectors": {}}], "networkPolicy/apiFrom/0", "podSelectors"
    ),
    "a probe of two kinds": _refused(
        "worker.livenessProbe.tcpSocket", {"port": "metrics"}, "worker.livenessProbe", "httpGet and tcpSocket"
    ),
    "a key that no label may have": _refused("commonLabels", {"cost center": "a"}, "/commonLabels", "cost center"),
    "a key that no annotation may have": _refused(
        "worker.podAnnotations", {"a/b/c": "d"}, "/worker/podAnnotations", "a/b/c"
    ),
    "a limit below the request": _refused(
        "worker.resources.limits.memory", "128Mi", "worker.resources", "requests.memory (256Mi)", "(128Mi)"
    ),
    "a limit below the request in another unit": _refused(
        "doctor.resources.limits", {"cpu": 0.05}, "doctor.resources", "requests.cpu (100m)", "(0.05)"
    ),
    "more in Redis than its limit": _refused(
        "redis.maxmemory", "1gb", "redis.maxmemory", "redis.resources.limits.memory"
    ),
    "a scrape that is longer than its interval": _refused(
        "metrics.serviceMonitor.interval", "9s", "metrics.serviceMonitor.scrapeTimeout", "10s", "9s"
    ),
    "an image with its tag": _refused("image.repository", "ml/torchq:1"),
    "a pool of half a device": _refused("settings.pool", "cpu=1,nvidia.com/gpu=0.5"),
    "a pool without a number": _refused("settings.pool", "cpu=many"),
    "half a replica": _refused("worker.replicas", 1.5),
    "no processes": _refused("worker.processes", 0),
    "a budget of none": _refused("coordinator.podDisruptionBudget.maxUnavailable", 0),
    "a budget of 0%": _refused("worker.podDisruptionBudget.maxUnavailable", "0%"),
    "a budget that keeps all": _refused(
        "worker.podDisruptionBudget.minAvailable", 2, "worker", "forbids every eviction"
    ),
    "a budget that keeps 51% of 2": _refused(
        "coordinator.podDisruptionBudget.minAvailable", "51%", "coordinator", "forbids every eviction"
    ),
    "a budget that keeps 100%": _refused("coordinator.podDisruptionBudget.minAvailable", "100%"),
    "a budget that keeps the only one": Refusal(
        {"worker": {"replicas": 1, "podDisruptionBudget": {"minAvailable": 1}}}, ("worker", "forbids every eviction")
    ),
    "a budget of nothing": _refused(
        "worker.podDisruptionBudget.maxUnavailable", None, "worker.podDisruptionBudget", "set maxUnavailable"
    ),
    "a setting of another version": _refused("settings.from_the_future", 1, "/settings", "from_the_future"),
    "a setting that the chart sets": _refused("settings.metrics_port", 9, "/settings", "metrics_port"),
    "a setting of another type": _refused("settings.threads", "many"),
    "a setting out of range": _refused("settings.threads", 0),
    "a pool that is none": _refused("settings.pool", "cpu"),
    "a renewal that is too slow": _refused("settings.renew_seconds", 6, "renew_seconds", "renew_deadline"),
    "a leader that outlives its Lease": _refused("settings.renew_deadline", 15, "renew_deadline", "lease_seconds"),
    "ports in the wrong order": _refused("settings.port_last", 2000, "port_last", "port_first"),
    "a Secret without its key": Refusal(
        {"redis": {"existingSecret": "mine", "existingSecretKey": ""}}, ("/redis/existingSecretKey",)
    ),
    "connections to no Redis": Refusal(
        {"redis": {"existingSecret": "mine"}, "networkPolicy": {"egress": {"enabled": True}}},
        ("networkPolicy.egress.more", "Redis"),
    ),
    "two recorders on one volume": Refusal(
        {"recorder": {"enabled": True, "replicas": 2}},
        ("recorder.replicas", "2 recorders need a PostgreSQL", "recorder.database.existingSecret"),
    ),
    "connections to no PostgreSQL": Refusal(
        {
            "recorder": {"enabled": True, "database": {"existingSecret": "mine"}},
            "networkPolicy": {"egress": {"enabled": True}},
        },
        ("networkPolicy.egress.recorder", "PostgreSQL"),
    ),
    "two dashboards that do not know each other's logins": Refusal(
        {"dashboard": {"enabled": True, "replicas": 2}},
        ("dashboard.replicas", "a login is known to one pod, so 2 pods need", "dashboard.sticky"),
    ),
    "an address for a host": _refused(
        "dashboard.ingress.host", "https://torchq.example.org/", "/dashboard/ingress/host"
    ),
    "a volume of no size": _refused("recorder.persistence.size", "large", "/recorder/persistence/size"),
    "a misspelt field of a rule": _refused("networkPolicy.egress.more", [{"from": []}], "egress/more/0", "from"),
    "no Redis at all": _refused("redis.bundled", False, "/redis/existingSecret"),
    "an impossible Secret": _refused("redis.existingSecret", "My Redis"),
    "a tenant without a namespace": _refused("tenants", [{"queue": "a"}], "/tenants/0", "namespace"),
    "a tenant twice": _refused(
        "tenants", [{"namespace": "a"}, {"namespace": "a", "queue": "b"}], "tenants", "a", "twice"
    ),
    "a digest without its algorithm": _refused("image.digest", "a" * 64),
    "a tag with a space": _refused("image.tag", "1 2"),
    "a name with capitals": _refused("fullnameOverride", "Torchq"),
    "a label of the chart": _refused("commonLabels", {"app.kubernetes.io/instance": "x"}, "commonLabels"),
    "a label of a selector on pods": _refused(
        "worker.podLabels", {"app.kubernetes.io/component": "x"}, "worker/podLabels"
    ),
    "an address for a block": _refused("networkPolicy.apiServer.cidrs", ["10.0.0.1"], "cidrs"),
    "a block that is too long": _refused("networkPolicy.apiServer.cidrs", ["10.0.0.1/33"], "cidrs"),
    "a name with two dots": _refused("redis.existingSecret", "my..redis"),
    "memory that is no quantity": _refused("worker.resources.limits.memory", "much"),
    "a spread without its key": _refused("worker.topologySpreadConstraints", [{"maxSkew": 1}], "topologyKey"),
    "a schedule of three fields": _refused("doctor.schedule", "* * *"),
    "a schedule that never comes": _refused("doctor.schedule", "61 * * * *"),
    "a value of no alert": _refused("metrics.prometheusRule.thresholds", {"backlog": 1}, "thresholds", "backlog"),
    "a duration without its unit": _refused("metrics.prometheusRule.thresholds", {"overQuotaFor": 24}, "overQuotaFor"),
    "a string for a boolean": _refused("crds.install", "false"),
}
