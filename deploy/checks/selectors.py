"""Every selector and every port name selects exactly the intended objects.

One rule: the label `component` says which objects are intended. A Service, a budget or a policy of a component must
pick all pods of that component and no other pod.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deploy.checks.objects import PREFIX, Manifest, PodTemplate, describe, of_kind, pods

UNSTABLE = ("version", "managed-by", "part-of")
"""Labels that change while pods live, or that all pods share."""
REDIS_CLIENTS = frozenset({"coordinator", "worker", "doctor"})


def problems(documents: Iterable[Manifest]) -> list[str]:
    """Return every selector and port that selects other objects than intended."""
    found = list(documents)
    everything = list(pods(found))
    checks: Mapping[str, Callable[[Manifest, list[PodTemplate]], list[str]]] = {
        "Deployment": _deployment,
        "Service": _service,
        "PodDisruptionBudget": _budget,
        "NetworkPolicy": _policy,
        "Ingress": _ingress,
    }
    problems = [text for each in found if each["kind"] in checks for text in checks[each["kind"]](each, everything)]
    problems += [text for each in of_kind(found, "ServiceMonitor") for text in _monitor(each, found)]
    return problems + _uncovered(of_kind(found, "NetworkPolicy"), everything)


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector picks these labels."""
    exact = selector.get("matchLabels") or {}
    return exact.items() <= labels.items() and all(
        _holds(each, labels) for each in selector.get("matchExpressions", ())
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
    return value is None


def _means(document: Manifest) -> str:
    return str(document["metadata"]["labels"][f"{PREFIX}component"]).removesuffix("-metrics")


def _picked(document: Manifest, selector: Mapping[str, Any], everything: list[PodTemplate]) -> list[str]:
    """Return the problems of the pods that a selector picks."""
    wanted, text = _means(document), describe(document)
    unstable = [key for key in _keys(selector) if key.removeprefix(PREFIX) in UNSTABLE]
    problems = [f"{text}: its selector uses label {key}" for key in unstable]
    if not _keys(selector):
        return [*problems, f"{text}: its selector picks every pod"]
    picked = {each.component for each in everything if matches(selector, each.labels)}
    if picked != {wanted}:
        problems.append(f"{text} picks pods of {sorted(picked) or 'no component'}, and means {wanted}")
    return problems


def _keys(selector: Mapping[str, Any]) -> list[str]:
    return [*(selector.get("matchLabels") or {}), *(each["key"] for each in selector.get("matchExpressions", ()))]


def _ports_of(document: Manifest, everything: list[PodTemplate]) -> Mapping[str, int]:
    return next((each.ports for each in everything if each.component == _means(document)), {})


def _deployment(document: Manifest, everything: list[PodTemplate]) -> list[str]:
    spec = document["spec"]["template"]["spec"]
    problems = _picked(document, document["spec"]["selector"], everything)
    for each in spec.get("topologySpreadConstraints", ()):
        problems += _picked(document, each["labelSelector"], everything)
    ports = _ports_of(document, everything)
    for container in spec["containers"]:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            if name == "startupProbe" and name not in container:
                continue  # Redis has none
            probe = container.get(name) or {}
            port = (probe.get("httpGet") or probe.get("tcpSocket") or {}).get("port")
            if port not in ports and "exec" not in probe:
                problems.append(f"{describe(document)}: {name} asks port {port}, and the pods have {sorted(ports)}")
    return problems


def _service(document: Manifest, everything: list[PodTemplate]) -> list[str]:
    problems = _picked(document, {"matchLabels": document["spec"]["selector"]}, everything)
    ports = _ports_of(document, everything)
    return problems + [
        f"{describe(document)}: port {each['name']} leads to {each['targetPort']} ({ports.get(each['targetPort'])})"
        for each in document["spec"]["ports"]
        if each["targetPort"] != each["name"] or ports.get(each["targetPort"]) != each["port"]
    ]


def _budget(document: Manifest, everything: list[PodTemplate]) -> list[str]:
    return _picked(document, document["spec"]["selector"], everything)


def _policy(document: Manifest, everything: list[PodTemplate]) -> list[str]:
    spec, text = document["spec"], describe(document)
    problems = _picked(document, spec["podSelector"], everything)
    ports = _ports_of(document, everything)
    for rule in spec.get("ingress", ()):
        named = [each["port"] for each in rule.get("ports", ())]
        problems += [
            f"{text} names port {port}, and the pods have {sorted(ports)}" for port in named if port not in ports
        ]
        if not named or not (rule.get("from") or named == ["pages"]):  # the pages ask for a login
            problems.append(f"{text} has a rule that lets in everybody, or to every port")
        if "metrics" in named and not all(_keys(each.get("namespaceSelector", {})) for each in rule.get("from", ())):
            problems.append(f"{text} lets pods of any namespace read the metrics: anybody may label a pod")
        if named == ["redis"]:
            problems += _clients(text, rule["from"], everything)
    return problems


def _ingress(document: Manifest, everything: list[PodTemplate]) -> list[str]:
    [rule] = document["spec"]["rules"]
    [path] = rule["http"]["paths"]
    backend, ports = path["backend"]["service"], _ports_of(document, everything)
    problems = [] if backend["port"]["name"] in ports else [f"leads to port {backend['port']['name']}"]
    if any(rule["host"] not in each["hosts"] for each in document["spec"].get("tls", ())):
        problems.append(f"has TLS for other hosts than {rule['host']}")
    if backend["name"] != document["metadata"]["name"]:
        problems.append(f"leads to Service {backend['name']}")
    return [f"{describe(document)} {each}" for each in problems]


def _clients(text: str, peers: list[Mapping[str, Any]], everything: list[PodTemplate]) -> list[str]:
    """Return whether exactly the pods that have the URL of Redis may connect to it."""
    if any(each.keys() != {"podSelector"} for each in peers):
        return [f"{text} lets in pods of other namespaces"]
    let_in = {each.component for each in everything if any(matches(peer["podSelector"], each.labels) for peer in peers)}
    using = {each.component for each in everything if each.component in REDIS_CLIENTS}
    return [] if let_in == using else [f"{text} lets in {sorted(let_in)}, and {sorted(using)} use it"]


def _monitor(document: Manifest, found: list[Manifest]) -> list[str]:
    spec, text = document["spec"], describe(document)
    services = [
        each
        for each in of_kind(found, "Service")
        if matches(spec["selector"], each["metadata"]["labels"])
        and each["metadata"]["namespace"] in spec["namespaceSelector"]["matchNames"]
    ]
    if [_means(each) for each in services] != [_means(document)]:
        return [f"{text} picks {[describe(each) for each in services]}, and means {_means(document)}"]
    ports = {each["name"] for each in services[0]["spec"]["ports"]}
    return [
        f"{text} scrapes port {each['port']}, and the Service has {sorted(ports)}"
        for each in spec["endpoints"]
        if {each["port"]} != ports
    ]


def _uncovered(policies: list[Manifest], everything: list[PodTemplate]) -> list[str]:
    """Return the servers that no policy protects, if there are policies at all."""
    if not policies:
        return []
    return [
        f"no NetworkPolicy protects the pods of {describe(each.owner)}"
        for each in everything
        if each.ports and not any(matches(policy["spec"]["podSelector"], each.labels) for policy in policies)
    ]
