"""The chart over a matrix of values, and the overlays: what `make chart` checks."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy import chart, check, generate, matrix, values_table
from deploy.chart import CHART, OVERLAYS, RefusedValues
from deploy.checks import objects, schemas
from tests.support.kubectl.command import needs_kubectl

NEWEST = schemas.versions()[-1:]


def test_generated_files_equal_their_sources() -> None:
    assert check.check_files() == []


@pytest.mark.parametrize("values", [{}, matrix.EVERYTHING], ids=["defaults", "everything"])
def test_helm_lint_finds_nothing(values: matrix.Values) -> None:
    assert chart.lint(values) == []


@pytest.mark.parametrize("name", matrix.CASES)
def test_values_that_work_give_a_sound_installation(name: str) -> None:
    assert check.check_case(matrix.CASES[name], NEWEST) == []


def test_the_defaults_are_valid_on_every_supported_version_of_kubernetes() -> None:
    oldest = re.search(r"kubeVersion: \">=(\d+\.\d+)\.", (CHART / "Chart.yaml").read_text())
    assert oldest is not None
    assert schemas.versions()[0] == oldest[1]
    documents = chart.render(matrix.EVERYTHING)
    assert [text for version in schemas.versions() for text in schemas.problems(documents, version)] == []


@pytest.mark.parametrize("name", matrix.REFUSED)
def test_impossible_values_are_refused_by_a_message_that_names_them(name: str) -> None:
    assert check.check_refusal(matrix.REFUSED[name]) == []


@needs_kubectl
@pytest.mark.parametrize("name", [each.name for each in chart.overlays()])
@pytest.mark.servers
def test_an_overlay_gives_a_sound_installation(name: str) -> None:
    assert check.check_overlay(name, NEWEST) == []


@needs_kubectl
@pytest.mark.servers
def test_the_default_overlay_is_the_chart_with_its_namespace() -> None:
    built = {_identity(each) for each in chart.kustomize(OVERLAYS / "default")}
    rendered = {_identity(each) for each in chart.render()}
    assert built - rendered == {("Namespace", "", "torchq-system")}
    assert rendered <= built
    assert {_identity(each) for each in chart.kustomize(OVERLAYS / "with-monitoring")} - built == {
        ("ServiceMonitor", "torchq-system", "torchq-coordinator"),
        ("ServiceMonitor", "torchq-system", "torchq-worker"),
        ("PrometheusRule", "torchq-system", "torchq"),
        ("ConfigMap", "torchq-system", "torchq-dashboards"),
        ("NetworkPolicy", "torchq-system", "torchq-coordinator-metrics"),
        ("NetworkPolicy", "torchq-system", "torchq-worker-metrics"),
    }


def test_an_overlay_that_kubectl_cannot_build_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = RefusedValues("accumulating resources: no such file")

    def build(folder: object) -> list[chart.Manifest]:
        raise refusal

    monkeypatch.setattr(chart, "kustomize", build)
    assert check.check_overlay("default", NEWEST) == [str(refusal)]


def test_values_that_are_accepted_though_they_must_not_be_are_a_problem() -> None:
    assert check.check_refusal(matrix.Refusal({"coordinator": {"replicas": 2}}, ())) == ["the values are accepted"]
    [said] = check.check_refusal(matrix.Refusal({"coordinator": {"replicas": 0}}, ("worker",)))
    assert "does not say worker" in said


def test_the_matrix_sets_every_value() -> None:
    described = {each.path for each in values_table.described((CHART / "values.yaml").read_text())}
    tried = [case.values for case in matrix.CASES.values()]
    assert {path for path in described if not any(_has(values, path) for values in tried)} == set()


def test_an_annotation_of_pods_does_not_keep_them_from_rolling() -> None:
    values = {"worker": {"podAnnotations": {"checksum/settings": "mine", "example.com/note": "yes"}}}
    [pod] = [each for each in objects.pods(chart.render(values)) if each.component == "worker"]
    annotations = pod.template["metadata"]["annotations"]
    assert annotations["example.com/note"] == "yes"
    assert re.fullmatch("[0-9a-f]{64}", annotations["checksum/settings"])


def test_an_eviction_of_the_bundled_redis_is_an_admins_decision() -> None:
    def budgets(values: matrix.Values) -> list[dict[str, Any]]:
        found = (each for each in chart.render(values) if each["kind"] == "PodDisruptionBudget")
        return [each["spec"] for each in found if each["metadata"]["name"].endswith("-redis")]

    (budget,) = budgets({})
    assert budget["maxUnavailable"] == 0
    assert budget["selector"]["matchLabels"]["app.kubernetes.io/component"] == "redis"
    assert budgets({"redis": {"podDisruptionBudget": {"enabled": False}}}) == []


def test_no_page_upgrades_with_the_values_of_the_release_before() -> None:
    """With --reuse-values, a newer chart would lack the values that are new in it."""
    pages = [*chart.ROOT.glob("*.md"), *(chart.ROOT / "docs").glob("*.md"), *(chart.ROOT / "deploy").rglob("*.md")]
    commands = [line for page in pages for line in page.read_text().splitlines() if line.startswith("helm upgrade")]
    assert len(commands) > 3
    assert [line for line in commands if "--reuse-values" in line] == []


def test_prometheus_may_be_any_pod_of_its_namespaces() -> None:
    source = {"namespaceLabels": {"team": "monitoring"}, "podLabels": None}
    documents = chart.render({"networkPolicy": {"metrics": source}})
    policies = objects.of_kind(documents, "NetworkPolicy")
    [policy] = [each for each in policies if each["metadata"]["name"].endswith("-worker-metrics")]
    [peer] = policy["spec"]["ingress"][0]["from"]
    assert peer == {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}, "podSelector": {}}


def test_every_value_has_a_type_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    document = yaml.safe_load(generate.SCHEMA.read_text())
    assert document["properties"].keys() == values.keys() | {"global"}
    for each in values_table.described((CHART / "values.yaml").read_text()):
        with pytest.raises(RefusedValues, match=each.path.rpartition(".")[2]):
            chart.templates(_with(values, each.path, object_of_another_type(each.default)))


def test_no_object_in_the_values_takes_unknown_fields() -> None:
    def open_objects(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, dict):
            is_typed = "properties" in schema or "object" in schema.get("type", ())
            is_part = path.endswith(("/if", "/then", "/items")) and schema.keys() <= {"properties", "required", "allOf"}
            if is_typed and schema.get("additionalProperties", True) is True and not is_part:
                yield path
        for key, each in schema.items() if isinstance(schema, dict) else enumerate(schema):
            if isinstance(each, dict | list):
                yield from open_objects(each, f"{path}/{key}")

    assert list(open_objects(yaml.safe_load(generate.SCHEMA.read_text()), "")) == ["/properties/global"]


def test_a_value_that_is_taken_away_is_named_or_not_needed() -> None:
    text = (CHART / "values.yaml").read_text()
    values, paths = yaml.safe_load(text), [each.path for each in values_table.described(text)]
    said = {path: check.check_refusal(_taken_away(values, path)) for path in paths}
    wrong = {path: problems for path, problems in said.items() if problems not in ([], ["the values are accepted"])}
    assert wrong == {}
    assert said["worker.replicas"] == []


def _taken_away(values: dict[str, object], path: str) -> matrix.Refusal:
    name = path.rpartition(".")[2]
    said = "set maxUnavailable or minAvailable" if name == "maxUnavailable" else "missing property"
    return matrix.Refusal(_with(values, path, None), (said, name))


def object_of_another_type(default: object) -> object:
    """Return a value of a type that no value of the chart may have in place of this default."""
    return "text" if isinstance(default, bool | int | dict | list) else [["nested"]]


def test_a_setting_that_is_new_in_the_code_is_a_value_at_once() -> None:
    document = yaml.safe_load(generate.SCHEMA.read_text())
    allowed = document["properties"]["settings"]["properties"].keys()
    assert allowed | generate.MANAGED == {*generate.Settings.model_fields, *generate.RETIRED}
    assert not allowed & generate.MANAGED


def test_the_values_that_the_page_shows_work() -> None:
    [example] = re.findall(r"^```yaml\n(.*?)^```", (chart.ROOT / "docs" / "operators.md").read_text(), re.M | re.S)
    values = yaml.safe_load(example.replace("REGISTRY", "registry.example"))
    assert check.check_case(matrix.Case(values, existing=("torchq-own-redis",)), NEWEST) == []


def test_the_readme_has_a_row_for_each_value_and_a_value_without_a_comment_is_an_error() -> None:
    text = (CHART / "values.yaml").read_text()
    rows = [line for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(values_table.described(text))
    with pytest.raises(ValueError, match=r"image\.tag has no comment"):
        values_table.described(re.sub(r"  # -- The tag; empty: the version.*\n", "", text))


def _identity(document: chart.Manifest) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _has(values: object, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


def _with(values: dict[str, object], path: str, value: object) -> dict[str, object]:
    made = copy.deepcopy(values)
    *parents, last = path.split(".")
    place = made
    for key in parents:
        place = place[key]  # type: ignore[assignment]
    place[last] = value
    return made
