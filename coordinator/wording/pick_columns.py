"""The columns of the picks that `next` forecasts, over the documents of `coordinator.query`."""

from collections import Counter
from collections.abc import Sequence

from coordinator.query.questions import Document, Queries
from coordinator.wording import ages
from coordinator.wording.amounts import format_amounts
from coordinator.wording.columns import TableColumn

NOW, LATER = "now", "when room is free"
"""When a forecast pick is made."""


PICK_COLUMNS = (
    TableColumn("PICK", lambda pick: pick["pick"]),
    TableColumn("QUEUE", lambda pick: pick.get("queue", "-")),
    TableColumn("JOB", lambda pick: pick["job"]),
    TableColumn("COST", lambda pick: pick.get("cost", "-"), lambda pick: pick.get("cost")),
    TableColumn("WAITED", lambda pick: ages.duration(pick.get("waitSeconds")), lambda pick: pick.get("waitSeconds")),
    TableColumn("DEMAND", lambda pick: format_amounts(pick.get("demand"))),
    TableColumn("WHEN", lambda pick: pick.get("when", "-")),
    TableColumn("PRIORITY", lambda pick: pick.get("priority", "-"), lambda pick: pick.get("priority"), wide=True),
    TableColumn("UID", lambda pick: pick.get("uid", "-"), wide=True),
)
"""The columns of the picks that `next` forecasts. Of the jobs of other teams only the number of the pick is known."""


def with_later_picks(fitting: Sequence[Document], in_order: Sequence[Document], count: int) -> list[Document]:
    """Return the picks that fit now, then the picks that follow once there is room, at most `count` in all.

    `in_order` are the picks as they would be if the pool had room for everything.
    """
    now = Counter(map(_pick_identity, fitting))
    later = []
    for pick in in_order:
        identity = _pick_identity(pick)
        if now[identity]:
            now[identity] -= 1
        else:
            later.append(pick)
    merged = [pick | {"when": NOW} for pick in fitting] + [pick | {"when": LATER} for pick in later]
    return [pick | {"pick": number} for number, pick in enumerate(merged[:count], start=1)]


def no_picks(waiting: int) -> str:
    """Return what is said where no job can be picked, of so many that wait."""
    return f"none of {waiting} waiting jobs can be picked now, even with room"


def _pick_identity(pick: Document) -> tuple[str, bool, int]:
    """Return the identity of a pick: a job is picked once, and then once for each further step of its growth. The jobs
    of other teams cannot be told apart."""
    return pick.get("uid", ""), bool(pick.get("growth")), int(pick.get("workers") or 0)


def upcoming(queries: Queries, document: Document, count: int) -> list[Document]:
    """Return the picks that fit now and those that follow; `document` has those that fit."""
    fitting = document["items"]
    is_all = len(fitting) >= min(count, document["waiting"])
    return with_later_picks(fitting, [] if is_all else queries.next(count, roomy=True)["items"], count)


def none_fits(document: Document) -> str:
    """Return the note that no job can be picked, although some wait."""
    return f"note: {no_picks(document['waiting'])}: torchq job why NAME says why"
