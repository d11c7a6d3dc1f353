"""Encoding of a batch of picks for the commit script, and decoding of the script's answer.

One rule: no value travels twice. Picks travel as columns, with every distinct demand and queue once. The answer has
only the decisions of the store.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import orjson

from crds.resources.amounts import Amounts
from queues.redis import codec
from queues.values import Batch, CommitResult, Pick, Reservation

NEXT_ENTRIES = 7
"""The index in the answer at which the next entries of queues begin."""

Encoded = tuple[bytes, bytes]
"""The picks; and the changes of each single pick, which the script reads only if a pick is refused."""


class _Demands:
    """The distinct triples of demand, attempt and cost of a batch. Equal demands mostly are one object, and a look-up
    by identity is faster than a look-up by content."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.attempts: list[int] = []
        self.costs: list[int] = []
        self._by_identity: dict[tuple[int, int, int], int] = {}
        self._by_text: dict[tuple[str, int, int], int] = {}

    def number(self, demand: Amounts, attempt: int, cost: int) -> int:
        """Return the number of a triple, from 1; add the triple if it is new."""
        triple = id(demand), attempt, cost
        number = self._by_identity.get(triple)
        if number is None:
            number = self._by_identity[triple] = self.add(codec.encode_amounts(demand), attempt, cost)
        return number

    def add(self, text: str, attempt: int, cost: int) -> int:
        """Return the number of a triple whose demand is already encoded."""
        number = self._by_text.setdefault((text, attempt, cost), len(self.texts) + 1)
        if number > len(self.texts):
            self.texts.append(text)
            self.attempts.append(attempt)
            self.costs.append(cost)
        return number


def _last_texts(changes: Iterable[tuple[int, str, str]]) -> list[str]:
    """Return queue, last text of the queue, and so on, as one flat list."""
    return [*chain.from_iterable({queue: text for _, queue, text in changes}.items())]


def encode(batch: Batch) -> Encoded:
    """Encode the picks of a batch, column by column (`lua/store/commit.lua` lists the columns)."""
    picks = batch.picks
    queues: dict[str, int] = {}
    demands = _Demands()
    accounts = [
        (number, queue, codec.encode_account(account))
        for number, pick in enumerate(picks, 1)
        for queue, account in pick.accounts.items()
    ]
    overtaken = [
        (number, queue, codec.encode_overtaken(job))
        for number, pick in enumerate(picks, 1)
        if pick.overtaken
        for queue, job in pick.overtaken.items()
    ]
    clocks = [codec.encode_clock(pick.clock) for pick in picks]
    entries = [pick.waiting for pick in picks]
    tickets = [entry.ticket for entry in entries]
    keys = [key for key, _, _ in tickets]
    demand_of = [demands.number(pick.waiting.demand, pick.waiting.ticket[1], pick.cost) for pick in picks]
    sizes: list[int] = []
    for at in [at for at, pick in enumerate(picks) if pick.units or pick.waiting.size]:
        sizes += (at + 1, picks[at].size)
        demand_of[at] = demands.add(codec.encode_amounts(picks[at].charge), tickets[at][1], picks[at].cost)
    texts, named = {"": 0}, [pick.nodes for pick in picks]
    nodes = [texts.setdefault(text, len(texts)) for text in named] if any(named) else []
    columns = {
        "keys": keys,
        "versions": [f"{entry.version}," for entry in entries],
        "queue": [queues.setdefault(entry.queue, len(queues) + 1) for entry in entries],
        "demand": demand_of,
        "grows": [number for number, (_, _, kind) in enumerate(tickets, 1) if kind == "grow"],
        "ports": [number for number, entry in enumerate(entries, 1) if entry.port],
        "sizes": sizes,
        "places": [*texts][1:],
        "nodes": nodes,
        **_totals(batch, clocks, accounts, overtaken),
    }
    tables = {"queues": list(queues), "demands": demands.texts, "attempts": demands.attempts, "costs": demands.costs}
    single_changes = {"clocks": clocks, "accounts": accounts, "overtaken": overtaken}
    return orjson.dumps(columns | tables), orjson.dumps(single_changes)


def _totals(
    batch: Batch, clocks: list[str], accounts: list[tuple[int, str, str]], overtaken: list[tuple[int, str, str]]
) -> dict[str, str | list[str]]:
    """Return the clock, accounts and overtaken jobs after all picks and after the changes without a pick."""
    clock = clocks[-1] if clocks else ""
    if batch.settlement is not None:
        settlement, number = batch.settlement, len(clocks) + 1
        clock = clock if settlement.clock is None else codec.encode_clock(settlement.clock)
        accounts = accounts + [
            (number, queue, codec.encode_account(account)) for queue, account in settlement.accounts.items()
        ]
        overtaken = overtaken + [
            (number, queue, codec.encode_overtaken(job)) for queue, job in settlement.overtaken.items()
        ]
    return {"clock": clock, "accounts": _last_texts(accounts), "overtaken": _last_texts(overtaken)}


def outcome(answer: list[bytes]) -> CommitResult:
    """Decode the script's answer without the reservations and the next entries of queues."""
    refused, picked, _, change, alone, others, _ = (part.decode() for part in answer[:NEXT_ENTRIES])
    return CommitResult(
        (),
        refused,  # type: ignore[arg-type]
        change=int(change),
        alone=alone == "1",
        others=tuple(sorted(others.split("\n"))) if others else (),
        picked=int(picked),
    )


def reservations(batch: Batch, answer: list[bytes]) -> tuple[Reservation, ...]:
    """Return the reservations of the picks that stand."""
    picks = batch.picks[: int(answer[1])]
    decided = answer[6].decode().split("\n") if answer[6] else [""] * len(picks)
    return tuple(_reservations(batch.epoch, picks, decided, int(answer[2])))


def _reservations(epoch: int, picks: Sequence[Pick], decided: list[str], number: int) -> Iterator[Reservation]:
    for pick, text in zip(picks, decided, strict=True):
        entry = pick.waiting.entry
        if entry.kind == "grow":
            yield codec.decode_reservation(entry.key, text)
            continue
        yield Reservation(
            key=entry.key,
            queue=entry.queue,
            attempt=entry.attempt,
            epoch=epoch,
            charge=pick.charge,
            pick=number,
            port=int(text or 0),
            size=pick.size,
            paid=pick.cost,
            nodes=pick.nodes,
        )
        number += 1
