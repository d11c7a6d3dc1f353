"""The first page: what is wrong, the pool, the queues, and the next picks."""

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Element, Page
from coordinator.query.questions import Document
from coordinator.wording import pick_columns, queue_columns
from coordinator.wording.amounts import format_amounts
from coordinator.wording.columns import status_of


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue, as a row shows it."""

    name: str
    state: str
    weight: str
    share: str
    target: str
    pending: int
    admitted: int
    usage: str
    cohort: str


@dataclass(frozen=True, slots=True)
class PickRow:
    """A forecast pick, as a row shows it."""

    number: int
    queue: str
    job: str
    when: str
    demand: str


def page(asked: Asked) -> Page:
    """Return the page."""
    return Page(
        template="queues",
        title="Queues",
        sections={
            "problems": tuple(problems(asked)),
            "queues": tuple(_queue(item) for item in asked.bounds.queues(asked.reading.queues)),
            "picks": tuple(_picks(asked)),
        },
    )


def problems(asked: Asked) -> Iterator[Element]:
    """Yield what is wrong with the system."""
    for part, text in asked.reading.problems.items():
        yield Element(f"problem-{part.replace(' ', '-')}", "problem", (part, text))


def _queue(item: Document) -> Element:
    name = item["metadata"]["name"]
    status = status_of(item)
    row = QueueRow(
        name=name,
        state=queue_columns.queue_state(item),
        weight=str(item["spec"].get("weight", 1)),
        share=status.get("share") or "-",
        target=status.get("target") or "-",
        pending=status.get("pending", 0),
        admitted=status.get("admitted", 0),
        usage=queue_columns.usage(item),
        cohort=item["spec"].get("cohort") or "-",
    )
    return Element(f"queue-{name}", "queue", row)


def _picks(asked: Asked) -> Iterator[Element]:
    fitting, ordered = (
        asked.bounds.picks({"items": answer.get("items", [])})["items"]
        for answer in (asked.reading.upcoming, asked.reading.in_order)
    )
    for pick in pick_columns.with_later_picks(fitting, ordered, 10):
        row = PickRow(
            number=pick["pick"],
            queue=pick.get("queue", ""),
            job=pick["job"],
            when=pick["when"],
            demand=format_amounts(pick.get("demand")),
        )
        yield Element(f"pick-{pick['pick']}", "pick", row)
