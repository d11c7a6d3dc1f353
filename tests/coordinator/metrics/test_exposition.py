"""The text of /metrics as a parser reads it, and the conventions for its names."""

import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.metrics import catalogue, document, exposition
from coordinator.metrics.page import REST, MetricsPage
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Registry
from kube.process.meter import Metric
from reconcilers.metrics import ADMISSIONS, WAIT_SECONDS

ODD_NAMES = ['with "quotes"', "back\\slash", "line\nbreak", "é" * 126, "x" * 253]
FORBIDDEN = ("namespace", "job", "pod", "uid", "message", "address", "host", "instance")


def test_the_page_is_read_back_with_odd_names_of_queues_and_cumulative_buckets() -> None:
    registry = Registry(QueueNames(10))
    for name in ODD_NAMES:
        registry.count(ADMISSIONS, name)
    registry.observe(WAIT_SECONDS, 3.0, "a")
    registry.observe(WAIT_SECONDS, 100_000.0, "a")
    families = {family.name: family for family in text_string_to_metric_families(page_text(registry))}
    admissions = families["torchq_admissions"]
    assert {sample.labels["queue"] for sample in admissions.samples} == set(ODD_NAMES)
    assert (admissions.type, admissions.documentation) == ("counter", ADMISSIONS.help)
    waits = {(sample.name, sample.labels.get("le")): sample.value for sample in families[WAIT_SECONDS.name].samples}
    assert waits[f"{WAIT_SECONDS.name}_bucket", "1.0"] == 0.0
    assert waits[f"{WAIT_SECONDS.name}_bucket", "5.0"] == waits[f"{WAIT_SECONDS.name}_bucket", "86400.0"] == 1.0
    assert waits[f"{WAIT_SECONDS.name}_bucket", "+Inf"] == waits[f"{WAIT_SECONDS.name}_count", None] == 2.0
    assert waits[f"{WAIT_SECONDS.name}_sum", None] == 100_003.0


@pytest.mark.parametrize("metric", catalogue.ALL, ids=lambda metric: metric.name)
def test_a_metric_has_help_base_units_and_no_label_of_an_object(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert not re.search(r"milli|micro|percent|minutes|_ms\b|mib|_kb", metric.name)
    assert not set(metric.labels) & set(FORBIDDEN)
    assert not (metric.buckets and metric.name.endswith("_total"))
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert "queue" not in metric.labels[1:], "the registry bounds the first label"


def test_names_are_unique_and_the_page_of_the_documentation_is_current() -> None:
    assert len(catalogue.BY_NAME) == len(catalogue.ALL)
    assert document.FILE.read_text(encoding="utf-8") == document.text(), "run `make manifests`"


@pytest.mark.servers
def test_promtool_finds_nothing_to_say_about_a_page_with_every_metric() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (of Prometheus) is not on PATH")
    registry = Registry(QueueNames(10))
    for metric in catalogue.ALL:
        labels = ["x"] * len(metric.labels)
        if metric.kind == "histogram":
            registry.observe(metric, 1.0, *labels)
        else:
            registry.count(metric, *labels)
    command = [promtool, "check", "metrics"]
    found = subprocess.run(command, input=page_text(registry), capture_output=True, text=True, check=False)
    problems = [line for line in (found.stdout + found.stderr).splitlines() if line]
    assert problems == []


def test_a_page_is_made_again_only_after_a_multiple_of_its_own_cost() -> None:
    now, cpu, made = [0.0], [0.0], []

    def make() -> bytes:
        made.append(now[0])
        cpu[0] += 0.1
        return b"page %d" % len(made)

    page = MetricsPage(make, lambda: now[0], lambda: cpu[0])
    assert {page.text() for _ in range(1_000)} == {b"page 1"}
    now[0] = 0.1 * REST - 0.01
    assert page.text() == b"page 1"
    now[0] = 0.1 * REST
    assert page.text() == b"page 2"
    assert made == [0.0, 0.1 * REST]


def page_text(registry: Registry) -> str:
    return exposition.text(registry.collect()).decode()
