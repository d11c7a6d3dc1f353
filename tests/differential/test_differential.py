"""A bounded differential run: the embedded API server gives the same answers as kube-apiserver.

One rule: codes, reasons and stored objects are compared call by call. docs/embedded.md lists the known differences, and
the test counts these differences, so that their number cannot grow.
"""

import random

import pytest

from tests.differential import run
from tests.differential.__main__ import report
from tests.differential.calls import calls
from tests.differential.story import Story
from tests.support.kube.servers import Server

pytestmark = pytest.mark.apiserver
_CALLS = 400
_KNOWN = 0.05
"""The share of calls whose codes may differ: rare cases in the table of docs/embedded.md."""


def test_embedded_server_answers_like_kube_apiserver(embedded_server: Server, real_server: Server) -> None:
    tally = run.run((embedded_server, real_server), seed=1, calls=_CALLS)
    assert tally.calls >= _CALLS
    failed = [each for each in tally.findings if each.replies[0].code >= 500 > each.replies[1].code]
    assert not failed, report(tally, 10)
    differing = [each for each in tally.findings if each.replies[0].code != each.replies[1].code]
    assert len(differing) <= _KNOWN * tally.calls, report(tally, 10)


def test_calls_of_an_episode_depend_on_the_seed_only() -> None:
    first, second = ([*calls(Story(random.Random("7"), "n"), 30)] for _ in range(2))
    assert first == second
