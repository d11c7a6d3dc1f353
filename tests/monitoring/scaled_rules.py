"""The alerts of deploy/monitoring/rules.yaml with shorter times, so that a run of minutes shows all of them.

One rule: only durations and the marked values change. Labels, expressions and the other thresholds stay as they are.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "deploy/monitoring/rules.yaml"
FACTOR = 60
"""A minute of the rules is a second of the run."""
OWN_FACTORS = {"TorchqRebuilding": 10, "TorchqJobsSentBack": 60}
"""The factors of alerts whose causes cannot be made at this speed: a rebuild takes seconds, whatever the scale."""
VALUES = {"starvedSeconds": "10", "backlogJobs": "20", "overQuotaFor": "10m"}
"""The marked values of the run, as an admin may set them. Durations are scaled later."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MARKED = re.compile(r"(\S+) # value: (\w+)$", re.MULTILINE)
_DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=[\]:])|(?<=offset )(\d+)([smhd])\b")


def scaled(values: Mapping[str, str] = VALUES) -> dict[str, Any]:
    """Return the rules with the values of the run and with scaled times."""
    rules: dict[str, Any] = yaml.safe_load(with_values(RULES.read_text(), values))
    for group in rules["groups"]:
        for rule in group["rules"]:
            factor = OWN_FACTORS.get(rule["alert"], FACTOR)
            rule["for"] = _shorten(rule["for"], factor)
            rule["expr"] = _DURATION.sub(lambda found, by=factor: _shorten(found[0], by), rule["expr"])
    return rules


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return the text of the rules with other marked values. Raises KeyError for a mark that has no value."""
    return _MARKED.sub(lambda found: f"{values[found[2]]} # value: {found[2]}", text)


def marks(text: str) -> dict[str, str]:
    """Return the marked values in the text of the rules, by name."""
    return {name: value for value, name in _MARKED.findall(text)}


def _shorten(duration: str, factor: int) -> str:
    found = re.fullmatch(r"(\d+)([smhd])", duration)
    assert found, f"{duration} is no duration of one unit"
    return f"{int(found[1]) * _UNITS[found[2]] * 1000 // factor}ms"
