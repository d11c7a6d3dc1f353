"""A real Prometheus with its own folder: its configuration, its process and its HTTP API.

One rule: Prometheus scrapes and evaluates every second, and listens on loopback only.
"""

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PROGRAM = "prometheus"
MISSING = "needs prometheus and promtool on PATH (Debian: apt-get install prometheus)"
SCRAPE = "1s"


@dataclass(frozen=True)
class Target:
    """A target of Prometheus: the labels `job` and `namespace`, and the port."""

    job: str
    namespace: str
    port: int


def is_installed() -> bool:
    """Return whether Prometheus and its tool can be started."""
    return all(shutil.which(program) for program in (PROGRAM, "promtool"))


class Prometheus:
    """One Prometheus. Another part runs its `command` and keeps the process running."""

    def __init__(self, folder: Path, port: int, rules: Mapping[str, Any], targets: list[Target]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._url = f"http://127.0.0.1:{port}"
        self._port = port
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules, sort_keys=False, width=10_000))
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(self._configuration(targets)))

    @property
    def command(self) -> list[str]:
        """The command line of the server."""
        return [
            PROGRAM,
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]

    def is_ready(self) -> bool:
        """Return whether the server answers queries."""
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query. Raises ValueError for an expression that is not valid."""
        found: list[dict[str, Any]] = self._ask("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float | None:
        """Return the value of an expression with one series; None if it has no series."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of the alerts that fire, by name."""
        fires: dict[str, list[dict[str, str]]] = {}
        for alert in self._ask("alerts")["alerts"]:
            if alert["state"] == "firing":
                fires.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return fires

    def targets_down(self) -> list[str]:
        """Return the errors of the targets that cannot be scraped."""
        targets = self._ask("targets", state="active")["activeTargets"]
        return [f"{each['scrapeUrl']}: {each['lastError']}" for each in targets if each["health"] != "up"]

    def rules_that_fail(self) -> list[str]:
        """Return the errors of rules that cannot be evaluated."""
        rules = [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]
        return [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] == "err"]

    def _ask(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(f"{parameters or path}: {error.read().decode()}") from error

    def _configuration(self, targets: list[Target]) -> dict[str, Any]:
        return {
            "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": "1s"},
            "rule_files": [str(self._folder / "rules.yaml")],
            "scrape_configs": [
                {
                    "job_name": job,
                    "honor_labels": True,
                    "static_configs": [
                        {"targets": [f"127.0.0.1:{each.port}"], "labels": {"namespace": each.namespace}}
                        for each in targets
                        if each.job == job
                    ],
                }
                for job in dict.fromkeys(target.job for target in targets)
            ],
        }
