"""The alerts: they load, they fire at their causes and at nothing else, and each alert can be looked up in the docs."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring import causes, known_names, scaled_rules
from tests.monitoring.prometheus import Prometheus, Target

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/monitoring"
TEXT = scaled_rules.RULES.read_text()
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(TEXT)["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"] for rule in RULES}
PROMISED = {
    "TorchqNoLeader",
    "TorchqLeaderStuck",
    "TorchqNoWorkers",
    "TorchqRedisDown",
    "TorchqRedisUnfit",
    "TorchqWorkerClock",
    "TorchqHistoryBehind",
    "TorchqBacklog",
    "TorchqReconcileErrors",
    "TorchqApiErrors",
    "TorchqRebuilding",
    "TorchqMixedVersions",
    "TorchqQueueOverQuota",
    "TorchqQueueStarved",
    "TorchqJobsSentBack",
    "TorchqDisagree",
}
needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (of Prometheus) is not on PATH")
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])


def promtool(*arguments: str) -> str:
    """Run promtool, which must succeed, and return its output."""
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_alerts_are_the_promised_ones() -> None:
    assert ALERTS == PROMISED


@needs_promtool
@pytest.mark.servers
def test_promtool_accepts_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")


@needs_promtool
@pytest.mark.proof
def test_every_alert_fires_at_its_cause_and_at_nothing_else() -> None:
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yaml")


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_ends() -> None:
    fires, ends = set(), set()
    for test in yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]:
        last: set[tuple[str, str]] = set()
        for case in (*test.get("promql_expr_test", ()), *test.get("alert_rule_test", ())):
            now = set(_expected(case))
            fires |= {name for name, _ in now}
            ends |= {name for name, _ in last - now}
            last = now
    assert (PROMISED - fires, PROMISED - ends) == (set(), set())


def _expected(case: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the labels of each alert that fires in a case of rules_test.yaml."""
    for sample in case.get("exp_samples", ()):
        yield re.findall(r'alertname="(\w+)"', sample["labels"])[0], sample["labels"]
    for alert in case.get("exp_alerts", ()):
        yield case["alertname"], str(alert["exp_labels"])


@every_rule
def test_every_alert_says_how_bad_it_is_and_where_its_runbook_is(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["for"]
    assert {*rule["annotations"]} == {"summary", "description", "runbook_url"}
    page, _, heading = rule["annotations"]["runbook_url"].partition("#")
    assert heading == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in (ROOT / page).read_text()


@pytest.mark.parametrize("name", ["TorchqQueueOverQuota", "TorchqQueueStarved", "TorchqJobsSentBack"])
def test_an_alert_about_a_queue_names_it(name: str) -> None:
    (rule,) = (rule for rule in RULES if rule["alert"] == name)
    assert "{{ $labels.queue }}" in rule["annotations"]["summary"]


@every_rule
def test_every_metric_and_label_of_an_alert_exists(rule: dict[str, Any]) -> None:
    assert list(known_names.unknown(rule["expr"])) == []


def test_names_that_do_not_exist_are_found() -> None:
    wrong = 'sum by (tenant) (rate(torchq_picks{pod="x"}[5m])) > 0 and torchq_redis_up{queue="a"}'
    assert sorted(known_names.unknown(wrong)) == [
        "label queue of torchq_redis_up",
        f"label tenant in {wrong!r}",
        "metric torchq_picks",
    ]


def test_every_value_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE))
    assert scaled_rules.marks(TEXT) == rows


def test_a_value_is_replaced_where_it_is_marked() -> None:
    values = {"starvedSeconds": "77", "backlogJobs": "88", "overQuotaFor": "99h"}
    assert scaled_rules.marks(scaled_rules.with_values(TEXT, values)) == values
    rules = scaled_rules.scaled(values)["groups"]
    changed = {rule["alert"]: rule for group in rules for rule in group["rules"]}
    assert changed["TorchqQueueOverQuota"]["for"] == f"{99 * 60}000ms"
    assert "> 77" in changed["TorchqQueueStarved"]["expr"]
    assert "[3000ms]" in changed["TorchqLeaderStuck"]["expr"]
    assert "[60000ms:]" in changed["TorchqRebuilding"]["expr"]
    assert "offset 60000ms" in changed["TorchqJobsSentBack"]["expr"]


@needs_promtool
@pytest.mark.servers
def test_prometheus_accepts_the_configuration_of_make_monitoring(tmp_path: Path) -> None:
    Prometheus(tmp_path / "prometheus", 1, scaled_rules.scaled(), [Target("torchq-worker", "torchq-system", 2)])
    said = promtool("check", "config", str(tmp_path / "prometheus/prometheus.yaml"))
    assert f"{len(RULES)} rules found" in said


def test_make_monitoring_makes_the_cause_of_every_alert() -> None:
    assert {cause.alert for group in causes.GROUPS for cause in group} == ALERTS
