"""A bounded differential run: the embedded API server answers as kube-apiserver does.

One rule: codes, reasons and stored objects are compared call by call; what is known to differ is listed in
docs/embedded.md and counted here, so that it can only become less.
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
"""Share of the calls whose codes may differ: rare ones that the table of docs/embedded.md names."""


def test_the_two_answer_alike(embedded_server: Server, real_server: Server) -> None:
    tally = run.run((embedded_server, real_server), seed=1, calls=_CALLS)
    assert tally.calls >= _CALLS
    failed = [each for each in tally.findings if each.replies[0].code >= 500 > each.replies[1].code]
    assert not failed, report(tally, 10)
    differing = [each for each in tally.findings if each.replies[0].code != each.replies[1].code]
    assert len(differing) <= _KNOWN * tally.calls, report(tally, 10)


def test_a_seed_says_it_all() -> None:
    first, second = ([*calls(Story(random.Random("7"), "n"), 30)] for _ in range(2))
    assert first == second
