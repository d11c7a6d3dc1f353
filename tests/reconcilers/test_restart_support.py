"""Whether Kubernetes restarts all containers: the features of nodes, and the dry run on API servers of all kinds."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from kube import errors
from reconcilers import restart_support
from reconcilers.restart_support import RestartSupport
from reconcilers.views import node_view
from reconcilers.views.node_view import NodeView
from tests.support.reconcilers.builders import job

FEATURE = "RestartAllContainersOnContainerExits"


def manifest(name: str, *features: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": ready}]}
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": status | ({"declaredFeatures": list(features)} if features else {}),
    }


NEW, OLD = manifest("n1", "A", FEATURE), manifest("n2", "A")


@pytest.mark.parametrize(
    ("nodes", "obstacle"),
    [
        ([NEW], ""),
        ([NEW, OLD], f"node n2 does not declare {FEATURE}"),
        ([NEW, OLD, manifest("n0")], f"node n0 and 1 more do not declare {FEATURE}"),
        ([NEW, manifest("n2", ready="Unknown")], ""),
        ([NEW, manifest("n2", unschedulable=True)], ""),
        ([manifest("n1", FEATURE, ready="False")], "no node is ready"),
        ([], "no node is ready"),
    ],
)
def test_every_node_that_takes_pods_has_to_declare_the_feature(nodes: list[dict[str, Any]], obstacle: str) -> None:
    assert node_view.restart_obstacle(map(node_view.trim, nodes)) == obstacle


@dataclass
class Nodes:
    items: list[dict[str, Any]] = field(default_factory=lambda: [NEW])
    synced: bool = True
    failing: str = ""
    reads: int = 0

    def get(self, *_: str) -> None:
        return None

    def values(self) -> list[NodeView]:
        self.reads += 1
        return [node_view.trim(each) for each in self.items]


@dataclass
class Server:
    """An API server that answers dry runs."""

    answer: Any = "keeps"
    asked: list[str] = field(default_factory=list)

    def create(self, resource: Any, body: dict[str, Any], namespace: str = "", *, dry_run: bool = False) -> Any:
        assert (resource.kind, dry_run, body["metadata"]["namespace"]) == ("Pod", True, namespace)
        self.asked.append(namespace)
        if isinstance(self.answer, errors.ClusterError):
            raise self.answer
        if self.answer == "drops":
            del body["spec"]["initContainers"][0]["restartPolicyRules"]
        return body


@dataclass
class Scene:
    server: Server = field(default_factory=Server)
    nodes: Nodes = field(default_factory=Nodes)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.support = RestartSupport(self.server, self.nodes, lambda: self.now)  # type: ignore[arg-type]

    def look(self, namespace: str = "team") -> str:
        described = job()
        metadata = described.metadata.model_copy(update={"namespace": namespace})
        return self.support.obstacle(described.model_copy(update={"metadata": metadata}))


def test_answers_are_kept_and_renewed() -> None:
    scene = Scene()
    assert [scene.look() for _ in range(5)] == [""] * 5
    assert (len(scene.server.asked), scene.nodes.reads) == (1, 1)
    scene.now += restart_support.NODES_SECONDS
    scene.nodes.items = [NEW, OLD]
    assert scene.look() == f"node n2 does not declare {FEATURE}"
    scene.nodes.items = [NEW]
    scene.server.answer = "drops"
    scene.now += restart_support.SERVER_SECONDS
    assert scene.look() == restart_support.NOT_KEPT
    assert len(scene.server.asked) == 2


def test_an_api_server_without_the_feature_is_asked_by_one_job_for_all() -> None:
    scene = Scene(Server("drops"))
    assert {scene.look(namespace) for namespace in ("a", "b", "c")} == {restart_support.NOT_KEPT}
    assert scene.server.asked == ["a"]


@pytest.mark.parametrize("error", [errors.Forbidden, errors.Invalid, errors.ServerError, errors.Unreachable])
def test_a_refusal_is_an_obstacle_in_its_namespace_for_a_while(error: type[errors.ClusterError]) -> None:
    scene = Scene(Server(error("exceeded quota: cpus")))
    assert [scene.look("full") for _ in range(3)] == [
        "a trial with a restart agent was refused: exceeded quota: cpus"
    ] * 3
    assert scene.server.asked == ["full"]
    scene.server.answer = "keeps"
    assert scene.look("other") == ""
    assert scene.look("full") == "", "the dry run in another namespace has shown the support"
    scene.now += restart_support.SERVER_SECONDS
    scene.server.answer = error("exceeded quota: cpus")
    assert [scene.look("full") for _ in range(3)] == ["", "", ""], "the earlier answer counts"
    assert scene.server.asked == ["full", "other", "full"]


def test_nothing_is_asked_while_nodes_are_not_known_or_cannot() -> None:
    scene = Scene(nodes=Nodes([OLD]))
    assert scene.look() == f"node n2 does not declare {FEATURE}"
    assert RestartSupport(scene.server, None, lambda: 0.0).obstacle(job()) == "the nodes are not known"  # type: ignore[arg-type]
    assert Scene(scene.server, Nodes(synced=False)).look() == "the nodes are not known"
    assert scene.server.asked == []
