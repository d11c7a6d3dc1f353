"""Pods that run as Pod Security `restricted` requires, with settings, accounts and files that are there.

One rule: every object that a pod names has to exist among the objects, or be named by a value.
"""

from collections.abc import Collection, Iterable

from coordinator import settings
from coordinator.errors import CoordinatorError
from coordinator.local import supervisor
from deploy.checks.objects import Manifest, PodTemplate, describe, of_kind, pods

NEEDS_TOKEN = frozenset({"coordinator", "worker", "recorder", "dashboard", "doctor"})
START_OF_END = 5
"""The seconds after a signal in which a process hears it, and after a drain in which it closes its connections."""
ADDRESSES = {"metrics": "METRICS", "http": "HEALTH", "reports": "REPORT", "pages": "DASHBOARD"}


def problems(documents: Iterable[Manifest], existing: Collection[str] = ()) -> list[str]:
    """Return the problems of the pods. `existing` has the accounts, Secrets and claims that the chart does not
    make."""
    found = list(documents)
    return [
        f"{describe(each.owner)}: {text}"
        for each in pods(found)
        for text in (
            *_restricted(each),
            *_references(each, found, existing),
            *_settings(each, found),
            *_injected(each),
        )
    ]


def _restricted(pod: PodTemplate) -> list[str]:
    """Check the rules of the Pod Security Standard `restricted` for the fields that these pods have."""
    spec, wrong = pod.spec, []
    own = spec.get("securityContext", {})
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        wrong.append("uses a namespace of the host")
    kinds = {name for volume in spec.get("volumes", ()) for name in volume if name != "name"}
    claims = {"ephemeral", "persistentVolumeClaim"}
    if kinds - {"configMap", "csi", "downwardAPI", "emptyDir", "projected", "secret"} - claims:
        wrong.append(f"has volumes of {sorted(kinds)}")
    for container in pod.containers:
        context = own | container.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            wrong.append("may escalate its privileges")
        if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
            wrong.append("may run as root")
        if context.get("capabilities", {}).get("drop") != ["ALL"]:
            wrong.append("keeps capabilities")
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            wrong.append("has no seccomp profile")
        if context.get("readOnlyRootFilesystem") is not True:
            wrong.append("may write to its root")
        if "memory" not in container.get("resources", {}).get("limits", {}):
            wrong.append("has no limit of memory")
    return wrong


def _references(pod: PodTemplate, found: list[Manifest], existing: Collection[str]) -> list[str]:
    names = {kind: {each["metadata"]["name"] for each in of_kind(found, kind)} | set(existing)
             for kind in ("Secret", "ConfigMap", "ServiceAccount", "PersistentVolumeClaim")}  # fmt: skip
    used = [("ServiceAccount", pod.spec["serviceAccountName"])] if "serviceAccountName" in pod.spec else []
    volumes = {each["name"]: each for each in pod.spec.get("volumes", ())}
    used += [("Secret", each["secret"]["secretName"]) for each in volumes.values() if "secret" in each]
    claims = [each["persistentVolumeClaim"] for each in volumes.values() if "persistentVolumeClaim" in each]
    used += [("PersistentVolumeClaim", each["claimName"]) for each in claims]
    for container in pod.containers:
        used += [("ConfigMap", each["configMapRef"]["name"]) for each in container.get("envFrom", ())]
    wrong = [f"names {kind} {name}, which is not there" for kind, name in used if name not in names[kind]]
    mounted = {each["name"] for container in pod.containers for each in container.get("volumeMounts", ())}
    return wrong + [f"mounts and volumes differ: {sorted(mounted ^ volumes.keys())}"] * (mounted != volumes.keys())


def environment(pod: PodTemplate, documents: Iterable[Manifest]) -> dict[str, str]:
    """Return the variables of the only container, as the kubelet makes them."""
    [container] = pod.spec["containers"]
    maps = {each["metadata"]["name"]: each.get("data") or {} for each in of_kind(documents, "ConfigMap")}
    made: dict[str, str] = {}
    for each in container.get("envFrom", ()):
        made |= maps.get(each["configMapRef"]["name"], {})
    return made | {each["name"]: each.get("value", "") for each in container.get("env", ())}


def _settings(pod: PodTemplate, found: list[Manifest]) -> list[str]:
    """Check the variables as the process does at its start, its ports, and the time that it has to end."""
    variables = environment(pod, found)
    names = {settings.PREFIX + name.upper() for name in settings.Settings.model_fields}
    wrong = [f"sets {name}, which is no setting" for name in variables if name not in names]
    try:
        made = settings.resolve({}, variables, None).settings
    except CoordinatorError as error:
        return [*wrong, str(error)]
    if pod.component not in NEEDS_TOKEN - {"doctor"}:
        return wrong
    for port, prefix in ADDRESSES.items():
        set_to = variables.get(f"TORCHQ_{prefix}_PORT")
        if (str(pod.ports[port]) if port in pod.ports else None) != set_to:
            wrong.append(f"listens at {set_to} for {port}, and has the ports {dict(pod.ports)}")
        if set_to and variables.get(f"TORCHQ_{prefix}_ADDRESS") != "0.0.0.0":
            wrong.append(f"listens for {port} where nobody reaches it")
    grace = pod.spec.get("terminationGracePeriodSeconds", 30)
    if grace < made.drain_seconds + supervisor.KILL_MARGIN + START_OF_END:
        wrong.append(f"has {grace} s to end, and drains for {made.drain_seconds} s")
    return wrong


def _injected(pod: PodTemplate) -> list[str]:
    needs, has = pod.component in NEEDS_TOKEN, pod.spec.get("automountServiceAccountToken")
    wrong = [] if has is needs else [f"automountServiceAccountToken is {has}"]
    if pod.spec.get("enableServiceLinks") is not False:
        wrong.append("gets variables about Services, which may look like settings")
    return wrong
