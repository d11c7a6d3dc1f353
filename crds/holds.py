"""Holds: for how long a job had which room, kept in its status.

One rule: pure, and exact. A sum over the holds of a job is the same before and after old holds are merged.

`status.admission` has what a job holds now, and is replaced when that changes. So each time that is over becomes a
hold. A job of 2 workers with 8 GPUs each that grows, is suspended and runs again:

    number  attempt  workers  charge    from   to     ended
    1       1        2        16 GPUs   09:00  10:00  Resized
    2       1        4        32 GPUs   10:00  10:30  Suspended
                     4        32 GPUs   12:00         no hold yet: `status.admission`, attempt 2

When a ninth hold would come, two old holds become one, which has sums of amount x seconds in place of a charge. The
first two above become numbers 1-2 with 16 x 3600 + 32 x 1800 = 115,200 GPU-seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from operator import not_
from typing import Annotated, Any

from pydantic import Field

from crds.model import LenientModel, Time
from crds.resources.amounts import Amounts, increase

MOST = 8
"""The most holds of one job."""
MOST_RESOURCES = 16
"""The most resources that a hold names."""
_FIRST = ("cpu", "memory", "pods", "jobs")
LONGEST_NUMBERS = 256
_NUMBERS = "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"
GPU = "/gpu"
"""The end of the names of resources that are GPUs."""

Resource = Annotated[str, Field(max_length=317)]
Held = Annotated[dict[Resource, Annotated[int, Field(ge=0)]], Field(max_length=MOST_RESOURCES, exclude_if=not_)]
Sums = Annotated[
    dict[Resource, Annotated[str, Field(max_length=40, pattern="^[0-9]+$")]],
    Field(max_length=MOST_RESOURCES, exclude_if=not_),
]
"""Sums of amount x seconds as text: 100 TB of memory over a month pass the largest number of the API server."""


class ClosedHold(LenientModel):
    """A time for which the job held the same room, or several such times together."""

    number: Annotated[int, Field(ge=1)]
    """Its number, counted from 1; of several holds together, the last one's."""
    numbers: Annotated[str, Field(max_length=LONGEST_NUMBERS, pattern=_NUMBERS, exclude_if=not_)] = ""
    """Of several holds together, all their numbers, such as 1-3,5."""
    queue: Annotated[str, Field(max_length=317)]
    attempt: Annotated[int, Field(ge=0)]
    """The attempt; of several, the last one."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """The number of workers; absent if the job had all that it requested."""
    charge: Held = Field(default_factory=dict)
    """What the job held, in canonical names and units."""
    unpaid: Held = Field(default_factory=dict)
    """The part of it that was idle growth, for which the queue did not pay."""
    others: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """The number of further resources that the job held and that are not named."""
    seconds: Sums = Field(default_factory=dict)
    """Of several holds together: for each resource, the sum of amount x seconds, in place of a charge."""
    unpaid_seconds: Sums = Field(default_factory=dict)
    """The part of these sums that was idle growth."""
    from_: Annotated[Time, Field(alias="from")]
    running: Time | None = None
    """The first time in the attempt at which every task had its minimum of running pods."""
    to: Time
    ended: Annotated[str, Field(max_length=64)]
    """Why it ended: the reason or the end of the job, or Resized, Paid or Charged where the job kept its room."""


def add(holds: tuple[ClosedHold, ...], hold: ClosedHold) -> tuple[ClosedHold, ...]:
    """Return the holds with a newer one. Before a ninth one, the two oldest of one queue become one, else the two
    oldest; of those whose numbers fit together. All become one if no two fit."""
    if len(holds) < MOST:
        return (*holds, hold)
    pairs = sorted(combinations(holds, 2), key=lambda pair: pair[0].queue != pair[1].queue)
    parts = next((pair for pair in pairs if len(_join(pair)) <= LONGEST_NUMBERS), holds)
    return (_merge(parts), *(other for other in holds if other not in parts), hold)


def next_number(holds: Iterable[ClosedHold], attempt: int) -> int:
    """Return the number of the next hold, in an attempt. The number is at least the attempt: where a worker of a
    version without holds has ended an attempt, a number is missing."""
    return max(attempt, 1 + max((hold.number for hold in holds), default=0))


def numbers_of(hold: ClosedHold) -> list[tuple[int, int]]:
    """Return the numbers of a hold, or of several holds together, as first and last of each range."""
    parts = (part.partition("-") for part in (hold.numbers or str(hold.number)).split(","))
    return [(int(low), int(high or low)) for low, _, high in parts]


def bounded(charge: Amounts) -> tuple[dict[str, int], int]:
    """Return the part of a charge that a hold names, and the number of the other resources. Those that quotas have
    everywhere go first, then GPUs, then the rest by name."""
    names = sorted((name for name, amount in charge.items() if amount > 0), key=_rank)
    return {name: charge[name] for name in names[:MOST_RESOURCES]}, max(0, len(names) - MOST_RESOURCES)


def _rank(name: str) -> tuple[int, str]:
    if name in _FIRST:
        return _FIRST.index(name), name
    return len(_FIRST) + (not name.endswith(GPU)), name


def resource_seconds(hold: ClosedHold) -> dict[str, int]:
    """Return for each resource of a hold the amount x seconds, exactly."""
    if hold.seconds:
        return {name: int(total) for name, total in hold.seconds.items()}
    return _product(hold.charge, hold)


def unpaid_seconds(hold: ClosedHold) -> dict[str, int]:
    """Return the part of `resource_seconds` that was idle growth."""
    if hold.seconds:
        return {name: int(total) for name, total in hold.unpaid_seconds.items()}
    return _product(hold.unpaid, hold)


def total_seconds(holds: Iterable[ClosedHold]) -> dict[str, int]:
    """Return the sums of `resource_seconds`."""
    return _sums(map(resource_seconds, holds))


def begin(holds: Iterable[ClosedHold], attempt: int, admitted_at: datetime | None, now: datetime) -> datetime:
    """Return when the room of an admission began to be as it is now: at the end of the last hold of this attempt, else
    at the admission."""
    ends = [hold.to for hold in holds if hold.attempt == attempt]
    return max(ends) if ends else admitted_at or now


def read(status: Mapping[str, Any], now: datetime) -> tuple[ClosedHold, ...]:
    """Return the holds in the status of a job, and what it holds now as one more."""
    holds = tuple(map(ClosedHold.model_validate, status.get("holds") or ()))
    admission = status.get("admission")
    if not admission or status.get("completionTime"):
        return holds
    admitted_at = admission.get("admittedAt")
    since = begin(holds, admission["attempt"], datetime.fromisoformat(admitted_at) if admitted_at else None, now)
    charge, others = bounded(admission.get("charge") or {})
    current = ClosedHold(
        number=next_number(holds, admission["attempt"]),
        queue=admission["queue"],
        attempt=admission["attempt"],
        charge=charge,
        others=others,
        from_=since,
        to=max(since, now),
        ended="",
    )
    return (*holds, current)


def _product(amounts: Amounts, hold: ClosedHold) -> dict[str, int]:
    seconds = max(0, int(hold.to.timestamp()) - int(hold.from_.timestamp()))
    return {name: amount * seconds for name, amount in amounts.items()}


def _merge(parts: Sequence[ClosedHold]) -> ClosedHold:
    """Return several holds as one with their sums."""
    numbers = _join(parts)
    if len(numbers) > LONGEST_NUMBERS:  # of all holds together: no other hold has the numbers that they lack
        numbers = f"1-{parts[-1].number}"
    sums, unpaid = total_seconds(parts), _sums(map(unpaid_seconds, parts))
    last = max(parts, key=lambda hold: hold.to)
    kept = sorted(sums, key=_rank)[:MOST_RESOURCES]
    return ClosedHold(
        number=max(hold.number for hold in parts),
        numbers=numbers,
        queue=last.queue,
        attempt=last.attempt,
        others=max(hold.others for hold in parts) + len(sums) - len(kept),
        seconds={name: str(sums[name]) for name in kept},
        unpaid_seconds={name: str(unpaid[name]) for name in kept if name in unpaid},
        from_=min(hold.from_ for hold in parts),
        running=next((hold.running for hold in parts if hold.running), None),
        to=last.to,
        ended=last.ended,
    )


def _sums(amounts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in amounts:
        increase(total, each)
    return total


def _join(parts: Iterable[ClosedHold]) -> str:
    """Return the numbers of holds together: 1-2 and 3 are 1-3."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(span for hold in parts for span in numbers_of(hold)):
        if joined and joined[-1][1] + 1 == low:
            joined[-1] = joined[-1][0], high
        else:
            joined.append((low, high))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in joined)
