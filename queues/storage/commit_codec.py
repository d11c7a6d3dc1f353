"""A batch of picks as the commit script takes it, and its answer.

One rule: what both sides know is not said twice. Picks go as columns, with every distinct demand and queue once; the
answer names only what the store decided.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import orjson

from crds.resources.amounts import Amounts
from queues.redis import codec
from queues.values import Batch, Committed, Entry, Reservation

SHOWN = 7
"""Where in the answer the queues to show begin."""


Encoded = tuple[bytes, bytes]
"""The picks, and what each of them changes: needed only if one is refused."""


class _Demands:
    """What picks ask for, with the number of attempt. Equal demands mostly are one object, which is found faster than
    by its content."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.attempts: list[int] = []
        self._by_identity: dict[tuple[int, int], int] = {}
        self._by_text: dict[tuple[str, int], int] = {}

    def number(self, demand: Amounts, attempt: int) -> int:
        found = self._by_identity.get((id(demand), attempt))
        if found is None:
            text = codec.encode_amounts(demand)
            found = self._by_text.setdefault((text, attempt), len(self.texts) + 1)
            if found > len(self.texts):
                self.texts.append(text)
                self.attempts.append(attempt)
            self._by_identity[id(demand), attempt] = found
        return found


def _together(changes: Iterable[tuple[int, str, str]]) -> list[str]:
    """The last text of each queue."""
    return [*chain.from_iterable({queue: text for _, queue, text in changes}.items())]


def encode(batch: Batch) -> Encoded:
    """The picks, column by column (`lua/store/commit.lua` lists them)."""
    picks = batch.picks
    queues: dict[str, int] = {}
    demands = _Demands()
    accounts = [
        (number, queue, codec.encode_account(account))
        for number, pick in enumerate(picks, 1)
        for queue, account in pick.accounts.items()
    ]
    overtaken = [
        (number, queue, codec.encode_overtaken(each))
        for number, pick in enumerate(picks, 1)
        if pick.overtaken
        for queue, each in pick.overtaken.items()
    ]
    clocks = [codec.encode_clock(pick.clock) for pick in picks]
    waiting = [pick.waiting for pick in picks]
    tickets = [each.ticket for each in waiting]
    keys = [key for key, _, _ in tickets]
    columns = {
        "keys": keys,
        "versions": [f"{each.version}," for each in waiting],
        "queue": [queues.setdefault(each.queue, len(queues) + 1) for each in waiting],
        "demand": [demands.number(each.demand, ticket[1]) for each, ticket in zip(waiting, tickets, strict=True)],
        "grows": [number for number, (_, _, kind) in enumerate(tickets, 1) if kind == "grow"],
        "ports": [number for number, each in enumerate(waiting, 1) if each.port],
        **_after_all(batch, clocks, accounts, overtaken),
    }
    named = {"queues": list(queues), "demands": demands.texts, "attempts": demands.attempts}
    each_one = {"clocks": clocks, "accounts": accounts, "overtaken": overtaken}
    return orjson.dumps(columns | named), orjson.dumps(each_one)


def _after_all(
    batch: Batch, clocks: list[str], accounts: list[tuple[int, str, str]], overtaken: list[tuple[int, str, str]]
) -> dict[str, str | list[str]]:
    """What holds after all picks, with what changes without a pick."""
    clock = clocks[-1] if clocks else ""
    if batch.settlement is not None:
        paid, last = batch.settlement, len(clocks) + 1
        clock = clock if paid.clock is None else codec.encode_clock(paid.clock)
        accounts = [*accounts, *((last, queue, codec.encode_account(each)) for queue, each in paid.accounts.items())]
        overtaken = [*overtaken, *((last, name, codec.encode_overtaken(each)) for name, each in paid.overtaken.items())]
    return {"clock": clock, "accounts": _together(accounts), "overtaken": _together(overtaken)}


def outcome(answer: list[bytes]) -> Committed:
    """The script's answer to a batch, but for the reservations and the queues that follow."""
    refused, picked, _, change, alone, others, _ = (each.decode() for each in answer[:SHOWN])
    return Committed(
        (),
        refused,  # type: ignore[arg-type]
        change=int(change),
        alone=alone == "1",
        others=tuple(sorted(others.split("\n"))) if others else (),
        picked=int(picked),
    )


def reservations(batch: Batch, answer: list[bytes]) -> tuple[Reservation, ...]:
    """What was taken of the batch."""
    entries = [pick.waiting.entry for pick in batch.picks[: int(answer[1])]]
    decided = answer[6].decode().split("\n") if answer[6] else [""] * len(entries)
    return tuple(_reservations(batch.epoch, entries, decided, int(answer[2])))


def _reservations(epoch: int, entries: list[Entry], decided: list[str], number: int) -> Iterator[Reservation]:
    for entry, text in zip(entries, decided, strict=True):
        if entry.kind == "grow":
            yield codec.decode_reservation(entry.key, text)
            continue
        yield Reservation(
            key=entry.key,
            queue=entry.queue,
            attempt=entry.attempt,
            epoch=epoch,
            charge=entry.demand,
            pick=number,
            port=int(text or 0),
        )
        number += 1
