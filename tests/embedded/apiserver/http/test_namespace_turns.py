"""Requests that have arrived at the same time: the turns of their namespaces."""

import asyncio
from collections.abc import Awaitable, Callable

from embedded.apiserver.http.namespace_turns import SHARED_SECONDS, NamespaceTurns
from tests.support.clock import Clock

Ask = Callable[[str, int], Awaitable[None]]


def carried_out(story: Callable[[Ask], Awaitable[None]], clock: Clock | None = None) -> list[tuple[str, int]]:
    """Return the requests of a story in the order in which they are carried out."""
    done: list[tuple[str, int]] = []

    async def run() -> None:
        turns = NamespaceTurns(clock or Clock())

        async def ask(namespace: str, number: int) -> None:
            await turns.take(namespace)
            done.append((namespace, number))

        async with asyncio.timeout(10):
            await story(ask)

    asyncio.run(run())
    return done


def test_a_namespace_with_many_requests_delays_another_by_one_of_them() -> None:
    async def story(ask: Ask) -> None:
        await asyncio.gather(*(ask("flood", number) for number in range(50)), *(ask("ours", each) for each in range(3)))

    order = carried_out(story)
    assert [order.index(("ours", number)) for number in range(3)] == [1, 3, 5]
    assert [number for namespace, number in order if namespace == "flood"] == list(range(50))


def test_requests_whose_clients_have_hung_up_take_no_turn() -> None:
    async def story(ask: Ask) -> None:
        requests = [asyncio.ensure_future(ask("ours", number)) for number in range(6)]
        await asyncio.sleep(0)  # each request waits for its turn, but for the first
        for request in requests[1:4] + requests[5:]:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        await ask("ours", 6)

    assert carried_out(story) == [("ours", number) for number in (0, 4, 6)]


def test_requests_of_a_namespace_that_is_alone_are_carried_out_together() -> None:
    clock = Clock()

    async def story(ask: Ask) -> None:
        await ask("theirs", 0)
        clock.step(SHARED_SECONDS)
        requests = [asyncio.ensure_future(ask("theirs", number)) for number in range(1, 5)]
        await asyncio.sleep(0)
        for request in requests:
            assert request.done()

    assert len(carried_out(story, clock)) == 5
