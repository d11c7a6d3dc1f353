"""Group commit: items of many threads are sent in groups, each item exactly once."""

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from queues.dispatch.redis_work import GroupCommit
from tests.support.waiting import SECONDS, until


class Server:
    """A server that receives groups. Each group waits until the test opens the gate."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.gate = threading.Event()
        self.fails = False

    def send(self, items: Sequence[int]) -> None:
        self.groups.append(list(items))
        assert self.gate.wait(SECONDS)
        if self.fails:
            raise OSError("no answer")


def test_items_that_arrive_during_a_send_form_one_group() -> None:
    server = Server()
    commit = GroupCommit(server.send)
    with ThreadPoolExecutor(20) as threads:
        first = threads.submit(commit, 0)
        until(lambda: server.groups)
        others = [threads.submit(commit, number) for number in range(1, 20)]
        until(lambda: len(commit._open.items) == 19)
        assert not any(each.done() for each in [first, *others])
        server.gate.set()
    assert [len(group) for group in server.groups] == [1, 19]
    assert sorted(itertools.chain.from_iterable(server.groups)) == list(range(20))


def test_failed_send_raises_for_every_item_and_the_next_group_succeeds() -> None:
    server = Server()
    server.fails = True
    server.gate.set()
    commit = GroupCommit(server.send)
    with ThreadPoolExecutor(8) as threads:
        results = [threads.submit(commit, number) for number in range(8)]
    assert all(isinstance(result.exception(), OSError) for result in results)
    server.fails = False
    commit(9)
    assert server.groups[-1] == [9]


@pytest.mark.parametrize("threads", [1, 4])
def test_every_item_is_sent_exactly_once_under_load(threads: int) -> None:
    server = Server()
    server.gate.set()
    commit = GroupCommit(server.send)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(commit, range(2_000)))
    assert sorted(itertools.chain.from_iterable(server.groups)) == list(range(2_000))
