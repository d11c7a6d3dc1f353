"""kubectl on running pods: logs, descriptions, graceful deletion, draining, and unsupported commands."""

import subprocess

from tests.support.kubectl.command import Kubectl, needs_kubectl
from tests.support.kubectl.things import pod
from tests.support.waiting import until

pytestmark = needs_kubectl


def _phase(kubectl: Kubectl, name: str, phase: str) -> None:
    kubectl("wait", f"pod/{name}", f"--for=jsonpath={{.status.phase}}={phase}", "--timeout=90s")


def test_logs_prints_the_selected_lines(node_kubectl: Kubectl) -> None:
    kubectl = node_kubectl
    script = "for i in 1 2 3; do echo line $i; done"
    first, second = pod("one", "sh", "-c", script), pod("two", "sh", "-c", "echo two")
    second["spec"]["containers"].append({"name": "side", "image": "none", "command": ["echo", "from the side"]})
    for each in (first, second):
        each["metadata"]["labels"] = {"set": "a"}
        kubectl("create", "-f", "-", body=each)
    _phase(kubectl, "one", "Succeeded")
    _phase(kubectl, "two", "Succeeded")
    assert kubectl("logs", "one") == "line 1\nline 2\nline 3\n"
    assert kubectl("logs", "one", "--tail=1") == "line 3\n"
    assert kubectl("logs", "one", "--since=1h") == "line 1\nline 2\nline 3\n"
    assert kubectl("logs", "one", "--since-time=2099-01-01T00:00:00Z") == ""
    stamped = kubectl("logs", "one", "--timestamps").splitlines()
    assert [line.split(" ", 1)[1] for line in stamped] == ["line 1", "line 2", "line 3"]
    assert all(line[4] == "-" and line.split()[0].endswith("Z") for line in stamped)
    assert kubectl("logs", "two", "-c", "side") == "from the side\n"
    assert sorted(kubectl("logs", "-l", "set=a", "--all-containers").splitlines())[-1] == "two"
    assert "previous terminated container" in kubectl.refused("logs", "one", "--previous")
    assert "not valid" in kubectl.refused("logs", "one", "-c", "nobody")


def test_logs_can_be_followed_and_previous_logs_printed(node_kubectl: Kubectl) -> None:
    kubectl = node_kubectl
    kubectl("create", "-f", "-", body=pod("p", "sh", "-c", "echo begin; until [ -e go ]; do sleep 0.05; done; echo end",
                                          volumes=[{"name": "v", "emptyDir": {}}]))  # fmt: skip
    _phase(kubectl, "p", "Running")
    command = kubectl.command("logs", "-f", "p")
    with subprocess.Popen(command, env=kubectl.environment(), stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        assert following.stdout.readline() == "begin\n"
        kubectl("delete", "pod", "p", "--grace-period=1")
        assert following.stdout.read() == ""
    assert following.returncode == 0
    again = pod("again", "sh", "-c", "echo run; exit 1", restartPolicy="OnFailure")
    kubectl("create", "-f", "-", body=again)
    until(lambda: kubectl.try_run("logs", "again", "--previous").out == "run\n")
    restarts = until(lambda: kubectl.rows("get", "pod", "again")[1][3], lambda cell: "ago" in cell)
    assert restarts.split()[0].isdecimal()


def test_describe_shows_a_pod_and_its_node(node_kubectl: Kubectl) -> None:
    kubectl = node_kubectl
    body = pod("p", "sleep", "60")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    kubectl("create", "-f", "-", body=body)
    _phase(kubectl, "p", "Running")
    assert kubectl.rows("get", "pod", "p")[1][:4] == ["p", "1/1", "Running", "0"]
    said = kubectl("describe", "pod", "p")
    for expected in ("Node:", "local/127.0.0.1", "State:", "Running", "Ready:", "True", "sleep"):
        assert expected in said
    node = kubectl("describe", "node", "local")
    for expected in ("Allocatable:", "nvidia.com/gpu", "Non-terminated Pods:", "p ", "Allocated resources:", "Lease:"):
        assert expected in node
    assert kubectl.rows("get", "nodes", "-o", "wide")[1][:3] == ["local", "Ready", "<none>"]
    kubectl("delete", "pod", "p", "--now")
    assert kubectl.try_run("get", "pod", "p").code == 1


def test_delete_cascades_by_policy(node_kubectl: Kubectl) -> None:
    kubectl = node_kubectl

    def family(name: str) -> None:
        made = kubectl("create", "configmap", f"owner-{name}", "-o", "jsonpath={.metadata.uid}")
        child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"child-{name}", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-{name}", "uid": made, "blockOwnerDeletion": True}
        ]}}  # fmt: skip
        kubectl("create", "-f", "-", body=child)

    for policy in ("background", "foreground", "orphan"):
        family(policy)
        kubectl("delete", "cm", f"owner-{policy}", f"--cascade={policy}")
    left = until(
        lambda: set(kubectl("get", "cm", "-o", "name").split()), lambda names: "configmap/child-background" not in names
    )
    assert left == {"configmap/child-orphan"}


def test_deleted_pod_terminates_until_it_is_forced(node_kubectl: Kubectl) -> None:
    kubectl = node_kubectl
    stubborn = pod("stubborn", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    kubectl("create", "-f", "-", body=stubborn)
    until(lambda: kubectl.try_run("logs", "stubborn").out == "ready\n")
    kubectl("delete", "pod", "stubborn", "--wait=false")
    assert kubectl.rows("get", "pod", "stubborn")[1][2] == "Terminating"
    assert "force deleted" in kubectl("delete", "pod", "stubborn", "--force", "--grace-period=0")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_drain_evicts_pods_and_blocks_new_ones_until_uncordon(node_kubectl: Kubectl) -> None:
    kubectl = node_kubectl
    kubectl("create", "-f", "-", body=pod("runs", "sleep", "60", terminationGracePeriodSeconds=1))
    _phase(kubectl, "runs", "Running")
    try:
        drained = kubectl("drain", "local", "--force", "--delete-emptydir-data", "--pod-selector=app=runs")
        assert "pod/runs" in drained
        assert kubectl.rows("get", "node", "local")[1][1] == "Ready,SchedulingDisabled"
        kubectl("create", "-f", "-", body=pod("waits"))
        told = until(lambda: kubectl("get", "pod", "waits", "-o", "jsonpath={.status.conditions[0].message}"))
        assert "unschedulable" in told
    finally:
        kubectl("uncordon", "local")
    _phase(kubectl, "waits", "Succeeded")


def test_unsupported_commands_explain_that_they_are_not_offered(node_kubectl: Kubectl) -> None:
    kubectl = node_kubectl
    kubectl("create", "-f", "-", body=pod("p", "sleep", "60"))
    _phase(kubectl, "p", "Running")
    for command in (
        ["exec", "p", "--", "ls"],
        ["attach", "p"],
        ["cp", "p:/x", "/nowhere"],
        ["port-forward", "p", ":80"],
    ):
        assert "not offered by the embedded cluster" in kubectl.refused(*command), command
    assert "Metrics API not available" in kubectl.refused("top", "pods")
    kubectl("delete", "pod", "p", "--now")
