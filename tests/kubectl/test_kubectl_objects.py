"""kubectl creates, changes and deletes objects on the embedded server and on a real server."""

import json
import subprocess
from pathlib import Path

from tests.support.kubectl.command import Kubectl, needs_kubectl
from tests.support.kubectl.things import config_map, job, pod, queue
from tests.support.waiting import until

pytestmark = needs_kubectl
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def test_apply_creates_keeps_and_changes_objects(kubectl: Kubectl) -> None:
    both = {"apiVersion": "v1", "kind": "List", "items": [config_map(), job()]}
    assert kubectl("apply", "-f", "-", body=both).count(" created") == 2
    assert kubectl("apply", "-f", "-", body=both).count(" unchanged") == 2
    changed = {**both, "items": [config_map(b="2"), job(workers=5)]}
    assert kubectl("apply", "-f", "-", "--dry-run=server", body=changed).count(" configured (server dry run)") == 2
    assert kubectl("apply", "-f", "-", "--dry-run=client", body=changed).count(" configured (dry run)") == 2
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1"}
    said = kubectl.try_run("diff", "-f", "-", body=changed)
    assert said.code == 1
    assert "+    numTasks: 5" in " ".join(said.out.split()).replace("+ ", "+    ")
    assert kubectl("apply", "-f", "-", body=changed).count(" configured") == 2
    found = kubectl.json("get", "cm", "c")
    assert found["data"] == {"b": "2"}
    assert json.loads(found["metadata"]["annotations"][_APPLIED])["data"] == {"b": "2"}
    assert kubectl.json("get", "tj", "j")["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] == 5


def test_server_side_apply_reports_conflicts_and_can_force(kubectl: Kubectl) -> None:
    server_side = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied (server dry run)" in kubectl(*server_side, "--dry-run=server", body=config_map())
    both = {"apiVersion": "v1", "kind": "List", "items": [config_map(), job()]}
    assert kubectl(*server_side, body=both).count(" serverside-applied") == 2
    other = (*server_side, "--field-manager=other")
    assert 'conflict with "kubectl"' in kubectl.refused(*other, body=config_map(a="2"))
    assert "serverside-applied" in kubectl(*other, "--force-conflicts", body=config_map(a="2"))
    found = kubectl.json("get", "cm", "c", "--show-managed-fields")
    assert found["data"] == {"a": "2"}
    assert [each["manager"] for each in found["metadata"]["managedFields"]] == ["other"]


def test_apply_merges_changes_of_other_clients(kubectl: Kubectl) -> None:
    """The test checks the strategic merge of kubectl and the server: containers by name, finalizers as a set."""
    kubectl("apply", "-f", "-", body=pod())
    kubectl("patch", "pod", "p", "-p", '{"metadata":{"finalizers":["example.com/a"],"labels":{"theirs":"1"}}}')
    changed = pod()
    changed["metadata"] |= {"labels": {"app": "p", "mine": "1"}, "finalizers": ["example.com/b"]}
    changed["spec"]["containers"][0]["image"] = "another"
    assert "configured" in kubectl("apply", "-f", "-", body=changed)
    found = kubectl.json("get", "pod", "p")
    assert found["metadata"]["labels"] == {"app": "p", "mine": "1", "theirs": "1"}
    assert sorted(found["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    assert [(c["name"], c["image"]) for c in found["spec"]["containers"]] == [("main", "another")]
    kubectl("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


def test_errors_name_the_mistake(kubectl: Kubectl) -> None:
    wrong = config_map()
    wrong["dada"] = {}
    assert 'unknown field "dada"' in kubectl.refused("apply", "-f", "-", body=wrong)
    bad = job()
    bad["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] = -1
    assert "spec.torchTaskSpecs.Worker.numTasks" in kubectl.refused("create", "-f", "-", body=bad)
    assert "AlreadyExists" in (kubectl("create", "-f", "-", body=config_map()), kubectl.refused(
        "create", "-f", "-", body=config_map()))[1]  # fmt: skip
    assert "NotFound" in kubectl.refused("get", "cm", "nobody")
    assert "the server doesn't have a resource type" in kubectl.refused("get", "deploymints")


def test_create_and_run_make_the_described_objects(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "made", "--from-literal=a=b", "--from-literal=c=d")
    assert kubectl.json("get", "cm", "made")["data"] == {"a": "b", "c": "d"}
    kubectl("create", "secret", "generic", "made", "--from-literal=a=b")
    assert kubectl.json("get", "secret", "made")["data"] == {"a": "Yg=="}
    kubectl("create", "serviceaccount", "made")
    kubectl("create", "quota", "made", "--hard=cpu=1,pods=5")
    assert kubectl.json("get", "quota", "made")["spec"]["hard"] == {"cpu": "1", "pods": "5"}
    kubectl("create", "service", "clusterip", "made", "--tcp=80:8080", "--clusterip=None")
    (port,) = kubectl.json("get", "service", "made")["spec"]["ports"]
    assert (port["port"], port["targetPort"], port["protocol"]) == (80, 8080, "TCP")
    kubectl("create", "namespace", f"{kubectl.namespace}-made")
    assert "Active" in kubectl("get", "namespace", f"{kubectl.namespace}-made")
    kubectl("run", "ran", "--image=none", "--restart=Never", "--command", "--", "true")
    assert kubectl.json("get", "pod", "ran")["spec"]["containers"][0]["command"] == ["true"]


def test_patch_supports_merge_json_and_strategic_patches(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": [config_map(), job()]})
    kubectl("patch", "cm", "c", "--type=merge", "-p", '{"data":{"b":"2"}}')
    kubectl("patch", "cm", "c", "--type=json", "-p", '[{"op":"remove","path":"/data/a"}]')
    kubectl("patch", "cm", "c", "--type=strategic", "-p", '{"data":{"c":"3"}}')
    assert kubectl.json("get", "cm", "c")["data"] == {"b": "2", "c": "3"}
    assert "no change" in kubectl("patch", "cm", "c", "-p", '{"data":{"c":"3"}}')
    assert "is not supported by" in kubectl.refused("patch", "tj", "j", "-p", '{"spec":{"suspend":true}}')
    kubectl("patch", "tj", "j", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    kubectl("patch", "tj", "j", "--type=merge", "--subresource=status", "-p", '{"status":{"restartCount":3}}')
    found = kubectl.json("get", "tj", "j")
    assert (found["spec"]["suspend"], found["status"]["restartCount"]) == (True, 3)


def test_edit_replace_label_and_annotate_change_an_object(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=config_map())
    assert "edited" in kubectl("edit", "cm", "c", KUBE_EDITOR='sed -i \'s/"1"/"7"/\'')
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "7"}
    assert "replaced" in kubectl("replace", "-f", "-", body=config_map(z="9"))
    kubectl("label", "cm", "c", "team=a")
    assert "already has a value" in kubectl.refused("label", "cm", "c", "team=b")
    kubectl("label", "cm", "c", "team=b", "--overwrite")
    kubectl("annotate", "cm", "c", "note=some words")
    own = kubectl.json("get", "cm", "c")["metadata"]
    assert (own["labels"], own["annotations"]) == ({"team": "b"}, {"note": "some words"})
    kubectl("label", "cm", "c", "team-")
    assert "labels" not in kubectl.json("get", "cm", "c")["metadata"]


def test_scale_sets_the_workers_within_the_rules_of_the_resource(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=job())
    assert "scaled" in kubectl("scale", "tj/j", "--replicas=4")
    assert kubectl.json("get", "tj", "j")["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] == 4
    assert "Expected replicas to be 9" in kubectl.refused("scale", "tj/j", "--current-replicas=9", "--replicas=1")
    said = kubectl.refused("scale", "tj/j", "--replicas=100000")
    assert "numTasks" in said


def test_delete_works_by_name_selector_and_file(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "-f", "-", body=config_map(name))
    kubectl("label", "cm", "a", "b", "go=1")
    assert kubectl("delete", "cm", "-l", "go=1").count("deleted") == 2
    assert "deleted" in kubectl("delete", "-f", "-", body=config_map("c"))
    assert kubectl("delete", "cm", "c", "--ignore-not-found") == ""
    assert "NotFound" in kubectl.refused("delete", "cm", "c")


def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    for name in ("kept", "let-go"):
        held = config_map(name)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        kubectl("create", "-f", "-", body=held)
    assert "timed out waiting" in kubectl.refused("delete", "cm", "kept", "--timeout=1s")
    command = kubectl.command("delete", "cm", "let-go")
    with subprocess.Popen(command, env=kubectl.environment(), stdout=subprocess.PIPE, text=True) as deleting:
        until(lambda: "deletionTimestamp" in kubectl.json("get", "cm", "let-go")["metadata"])
        assert deleting.poll() is None
        for name in ("kept", "let-go"):
            kubectl("patch", "cm", name, "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
        assert "deleted" in deleting.communicate(timeout=90)[0]
    assert deleting.returncode == 0
    assert kubectl("get", "cm", "-o", "name", "--field-selector=metadata.name!=kube-root-ca.crt") == ""


def test_wait_returns_on_conditions_values_and_deletion(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=job())
    condition = {"type": "Succeeded", "status": "True", "reason": "Done", "message": "", "observedGeneration": 1,
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    waiting = [
        subprocess.Popen(kubectl.command("wait", "tj/j", wish, "--timeout=60s"), env=kubectl.environment())
        for wish in ("--for=condition=Succeeded", "--for=jsonpath={.status.restartCount}=2")
    ]
    status = {"status": {"conditions": [condition], "restartCount": 2}}
    kubectl("patch", "tj", "j", "--type=merge", "--subresource=status", "-p", json.dumps(status))
    assert [each.wait(90) for each in waiting] == [0, 0]
    gone = subprocess.Popen(kubectl.command("wait", "tj/j", "--for=delete", "--timeout=60s"), env=kubectl.environment())
    kubectl("delete", "tj", "j")
    assert gone.wait(90) == 0
    kubectl("create", "-f", "-", body=config_map())
    assert "timed out" in kubectl.refused("wait", "cm/c", "--for=jsonpath={.data.a}=never", "--timeout=1s")


def test_get_with_watch_prints_rows_of_changes(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", body=job("first"))
    with open(tmp_path / "seen", "w+") as seen:
        command = kubectl.command("get", "tj", "-w", "--output-watch-events")
        watching = subprocess.Popen(command, env=kubectl.environment(), stdout=seen)
        try:

            def lines() -> list[list[str]]:
                return [line.split() for line in (tmp_path / "seen").read_text().splitlines()]

            until(lambda: len(lines()) >= 2)
            kubectl("create", "-f", "-", body=job("second"))
            kubectl("delete", "tj", "second")
            found = until(lines, lambda rows: ["DELETED", "second"] in [row[:2] for row in rows])
        finally:
            watching.terminate()
            watching.wait(30)
    assert found[0][:3] == ["EVENT", "NAME", "PHASE"]
    assert [row[:2] for row in found[1:3]] == [["ADDED", "first"], ["ADDED", "second"]]


def test_tenant_queues_are_cluster_scoped(kubectl: Kubectl) -> None:
    name = f"q-{kubectl.namespace}"
    kubectl("apply", "-f", "-", body=queue(name))
    assert "configured" in kubectl("apply", "-f", "-", body=queue(name, 3))
    assert kubectl.rows("get", "tq", name)[1][:2] == [name, "3"]
    kubectl("delete", "tq", name)
