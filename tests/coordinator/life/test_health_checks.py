"""The answers to probes, in the words of kube-apiserver."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from coordinator.life import health_checks
from coordinator.life.health_checks import Check

HUNG = Check("term", "it has not turned for 31 s")
AWAY = Check("queues", note="Redis is away")


@dataclass
class Told:
    """Probes with fixed answers."""

    health: Sequence[Check] = ()
    ready: Sequence[Check] = ()

    def healthz(self) -> Sequence[Check]:
        return self.health

    def readyz(self) -> Sequence[Check]:
        return self.ready


def test_a_probe_that_passes_says_ok_and_lists_its_checks_on_request() -> None:
    probes = Told(ready=[AWAY])
    assert health_checks.answer(probes, "/readyz", "") == (200, "ok")
    listed = "[+]ping ok\n[+]queues ok (Redis is away)\nreadyz check passed"
    assert health_checks.answer(probes, "/readyz", "verbose") == (200, listed)
    assert health_checks.answer(probes, "/readyz", "timeout=1&verbose=true") == (200, listed)


def test_a_probe_that_fails_lists_its_checks_unasked() -> None:
    text = "[+]ping ok\n[-]term failed: it has not turned for 31 s\n[+]queues ok (Redis is away)\nhealthz check failed"
    assert health_checks.answer(Told(health=[HUNG, AWAY]), "/healthz", "") == (503, text)


@pytest.mark.parametrize("path", ["/", "/healthz/term", "/livez", "/metrics"])
def test_other_paths_are_no_probes(path: str) -> None:
    assert health_checks.answer(Told(), path, "") is None


def test_checks_travel_as_json_and_what_cannot_be_read_is_left_out() -> None:
    document = json.loads(json.dumps(health_checks.to_json([HUNG, AWAY])))
    assert health_checks.from_json(document) == [HUNG, AWAY]
    assert health_checks.from_json([["a"], ["a", 1, ""], "abc", None, ["a", "", ""]]) == [Check("a")]
    assert health_checks.from_json("abc") == []
