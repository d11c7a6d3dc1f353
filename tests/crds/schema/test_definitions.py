"""The CustomResourceDefinitions match the models and are accepted by API servers and kubectl."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds import generate
from embedded.apiserver.kinds import custom_resources as served_definitions

KUBECTL_LIMIT = 200_000
"""A limit in bytes: `kubectl apply` stores the object in an annotation of at most 256 KiB."""
TORCHJOB, TENANT_QUEUE, SCALE_OUT, SCALE_IN, MODEL_VERSION = generate.load()


def version(definition: dict[str, Any]) -> dict[str, Any]:
    (only,) = definition["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from nodes(schema[name], f"{path}.*")


def below(definition: dict[str, Any], path: str) -> dict[str, Any] | None:
    node = version(definition)["schema"]["openAPIV3Schema"]
    for step in path.strip(".").split("."):
        node = node.get("properties", {}).get(step) or node.get("additionalProperties")
        if node is None:
            return None
    assert isinstance(node, dict)
    return node


@pytest.mark.parametrize("name", sorted(generate.DEFINITIONS))
def test_manifest_files_match_the_models(name: str) -> None:
    written = (Path(generate.__file__).parent / "manifests" / f"{name}.yaml").read_text(encoding="utf-8")
    assert written == generate.manifest(name), "run: python -m crds.generate"


def test_documents_contain_all_definitions() -> None:
    kinds = [each["spec"]["names"]["kind"] for each in yaml.safe_load_all(generate.documents())]
    assert kinds == ["TorchJob", "TenantQueue", "ScaleOut", "ScaleIn", "ModelVersion"]


@pytest.mark.parametrize("definition", generate.load(), ids=lambda definition: definition["spec"]["names"]["kind"])
class TestDefinition:
    def test_definition_is_small_enough_for_kubectl_apply(self, definition: dict[str, Any]) -> None:
        assert len(json.dumps(definition)) < KUBECTL_LIMIT

    def test_definition_is_structural_and_its_rules_compile(self, definition: dict[str, Any]) -> None:
        assert list(served_definitions.check(definition, None)) == []

    def test_each_field_of_the_spec_is_bounded(self, definition: dict[str, Any]) -> None:
        schema = version(definition)["schema"]["openAPIV3Schema"]
        unbounded = [
            path
            for path, node in nodes(schema["properties"]["spec"])
            if ".template" not in path
            and not {
                "string": {"maxLength", "enum"},
                "array": {"maxItems"},
                "integer": {"maximum"},
            }.get(node.get("type", ""), {"maxProperties"} if "additionalProperties" in node else set(node))
            & node.keys()
        ]
        assert unbounded == []

    def test_each_column_shows_an_existing_field(self, definition: dict[str, Any]) -> None:
        for column in version(definition)["additionalPrinterColumns"]:
            if not column["jsonPath"].startswith(".metadata."):
                path = column["jsonPath"].partition("[?(")[0]  # a filter selects elements of a list
                assert below(definition, path) is not None, column["name"]

    def test_every_rule_has_a_message(self, definition: dict[str, Any]) -> None:
        for path, node in nodes(version(definition)["schema"]["openAPIV3Schema"]):
            for rule in node.get("x-kubernetes-validations", []):
                assert rule["message"], path

    def test_status_has_no_defaults(self, definition: dict[str, Any]) -> None:
        status = version(definition)["schema"]["openAPIV3Schema"]["properties"]["status"]
        assert [path for path, node in nodes(status) if "default" in node] == []

    def test_status_is_owned_as_a_whole(self, definition: dict[str, Any]) -> None:
        status = below(definition, "status")
        assert status is not None
        assert status["x-kubernetes-map-type"] == "atomic"


def test_torchjob_is_namespaced_and_scales_its_workers() -> None:
    assert (TORCHJOB["spec"]["scope"], TORCHJOB["spec"]["names"]["shortNames"]) == ("Namespaced", ["tj"])
    scale = version(TORCHJOB)["subresources"]["scale"]
    for path in scale.values():
        assert below(TORCHJOB, path) is not None, path


def test_tenant_queue_is_cluster_scoped() -> None:
    assert (TENANT_QUEUE["spec"]["scope"], TENANT_QUEUE["spec"]["names"]["shortNames"]) == ("Cluster", ["tq"])
    assert "status" in version(TENANT_QUEUE)["subresources"]


@pytest.mark.parametrize(("definition", "short"), [(SCALE_OUT, "tso"), (SCALE_IN, "tsi")])
def test_scale_request_is_namespaced_and_shows_its_job_and_sizes(definition: dict[str, Any], short: str) -> None:
    assert (definition["spec"]["scope"], definition["spec"]["names"]["shortNames"]) == ("Namespaced", [short])
    columns = version(definition)["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Job", "From", "To", "Phase", "Age"]


def test_torchjob_has_no_defaults() -> None:
    assert [path for path, node in nodes(version(TORCHJOB)["schema"]["openAPIV3Schema"]) if "default" in node] == []


def test_template_keeps_its_metadata_and_undeclared_fields() -> None:
    node = below(TORCHJOB, "spec.torchTaskSpecs.Any.template")
    assert node is not None
    assert node["x-kubernetes-preserve-unknown-fields"]
    assert node["x-kubernetes-map-type"] == "atomic"
    assert set(node["properties"]["metadata"]["properties"]) == {"labels", "annotations"}
