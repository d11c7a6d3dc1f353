"""The screen of `torchq top` as lines of a given size.

One rule: pure; a screen has at most as many lines and columns as the terminal, so that no line wraps and nothing
scrolls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.text import Text

from coordinator import terminal
from coordinator.cli import job_ref
from coordinator.query.questions import Document
from coordinator.wording import ages, amounts, job_columns, job_facts, pick_columns, queue_columns
from crds.keys import JobKey

GPU, CPU = "nvidia.com/gpu", "cpu"
SHOWN = (GPU, CPU, "memory")
"""The resources of the pool that have a bar."""
BAR = 12
"""The cells of a bar."""
GAP = "  "
_FULL, _EMPTY, _MARK = "█", "░", "│"
_FEWEST_ROWS = 3
"""The rows of a table that are shown even if the other one has to give way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenReading:
    """The findings of one look at the cluster."""

    status: Document
    """The document of `coordinator.wording.system_health.summarize`, with the name of the cluster."""
    queues: Sequence[Document] = ()
    picks: Sequence[Document] = ()
    jobs: Sequence[Document] = ()
    """The admitted TorchJobs of the namespace."""
    training: Mapping[JobKey, Document] = field(default_factory=dict)
    """What the training code of these jobs reports, as far as it is known."""
    pool: Document | None = None
    """The capacity of the pool and its usage."""


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """A column: its title, its texts by row, and whether numbers are aligned to the right."""

    title: str
    cells: Sequence[Text]
    right: bool = False

    @property
    def width(self) -> int:
        """The width in cells."""
        return max(len(self.title), *(cell.cell_len for cell in self.cells), 0)


def lines(reading: ScreenReading, now: datetime, width: int, height: int, first_queue: int = 0) -> list[Text]:
    """Return the lines of a screen of this size; `first_queue` is the index of the first queue that is shown."""
    head = _head(reading, now)
    queues, jobs, picks = _share(height - len(head), reading)
    found = [*head]
    if queues > 1:
        found += _queue_lines(reading, queues, first_queue)
    if jobs > 2:
        found += [Text(), *_table(_job_columns(reading.jobs[: jobs - 2], reading.training, now))]
    if picks > 2:
        found += [Text(), *_table(_pick_columns(reading.picks[: picks - 2]))]
    shown = [_cleaned(line) for line in found[: max(height, 0)]]
    for line in shown:
        line.truncate(width, overflow="ellipsis")
    return shown


def _cleaned(line: Text) -> Text:
    """Return the line as it may be drawn: rich draws control characters. A line that has any loses its styles."""
    text = terminal.one_line(line.plain)
    return line if text == line.plain else Text(text)


def most_scrolled(reading: ScreenReading, now: datetime, height: int) -> int:
    """Return the largest useful index of the first queue."""
    queues, _, _ = _share(height - len(_head(reading, now)), reading)
    return max(0, len(reading.queues) - _rows(queues, len(reading.queues)))


def _share(room: int, reading: ScreenReading) -> tuple[int, int, int]:
    """Return the lines for queues, jobs and picks, each with its header, and jobs and picks with a blank line.

    Queues have at least half of the room if they need it, jobs and picks share the remaining room.
    """
    wanted = [len(table) + 2 if table else 0 for table in (reading.jobs, reading.picks)]
    least = sum(min(lines, _FEWEST_ROWS + 2) for lines in wanted)
    for_queues = min(len(reading.queues) + 1, max(room - least, room // 2, 0))
    left = max(room - for_queues, 0)
    for_picks = min(wanted[1], max(left - wanted[0], left // 2))
    for_jobs = min(wanted[0], left - for_picks)
    return max(room - for_jobs - for_picks, 0), for_jobs, for_picks


def _rows(room: int, queues: int) -> int:
    """Return how many queues fit below their header; one line less if some queues are left out, for the number of
    these.
    """
    rows = max(room - 1, 0)
    return rows if rows >= queues else max(rows - 1, 0)


def _head(reading: ScreenReading, now: datetime) -> list[Text]:
    status = reading.status
    title = Text.assemble(
        ("torchq top", "bold"), f" on {status.get('cluster') or 'this cluster'}{GAP}{now.astimezone():%H:%M:%S}",
        (f"{GAP}q: quit, arrows: scroll", "dim"),
    )  # fmt: skip
    workers = status.get("workers")
    parts = [f"Leader: {status.get('leader') or 'none'}", f"Workers: {'unknown' if workers is None else len(workers)}"]
    if jobs := status.get("jobs"):
        parts.append(f"Jobs: {jobs['waiting']} waiting, {jobs['admitted']} admitted")
    if rates := status.get("rates"):
        parts.append(f"{rates['picksPerSecond']} picks/s, {rates['reconcilesPerSecond']} reconciles/s")
    trouble = [Text(f"{name}: {problem}", "bold red") for name, problem in (status.get("trouble") or {}).items()]
    return [title, Text(GAP.join(parts)), *_pool_line(reading.pool), *trouble, Text()]


def _pool_line(pool: Document | None) -> list[Text]:
    capacity = (pool or {}).get("capacity")
    if not pool or not capacity:
        return []
    line = Text("Pool: ")
    for name, amount in ((name, capacity[name]) for name in SHOWN if name in capacity):
        used = pool["used"].get(name, "0")
        line.append_text(bar(amounts.fraction(used, amount)))
        line.append(f" {amounts.readable(name, used)}/{amounts.readable(name, amount)} {name}{GAP}")
    return [line]


def _queue_lines(reading: ScreenReading, room: int, first: int) -> list[Text]:
    rows = _rows(room, len(reading.queues))
    shown = reading.queues[first : first + rows]
    left = len(reading.queues) - len(shown)
    named = (name for queue in reading.queues for name in (*_usage(queue), *(queue["spec"].get("quota") or {})))
    found = _table(_queue_columns(shown, GPU if GPU in named else CPU))  # GPUs where any queue has them
    return [*found, Text(f"{left} more queues", "dim")] if left else found


def _usage(queue: Document) -> Document:
    return (queue.get("status") or {}).get("usage") or {}


def _queue_columns(queues: Sequence[Document], resource: str) -> list[ScreenColumn]:
    status, states = [queue.get("status") or {} for queue in queues], map(queue_columns.queue_state, queues)
    shares = [bar(queue_columns.part(queue, "share"), queue_columns.part(queue, "target")) for queue in queues]
    return [
        ScreenColumn("QUEUE", [Text(queue["metadata"]["name"], "bold") for queue in queues]),
        ScreenColumn("STATE", [Text(state, "" if state == "Open" else "yellow") for state in states]),
        ScreenColumn("WEIGHT", [Text(str(queue["spec"].get("weight", 1))) for queue in queues], right=True),
        ScreenColumn("WAIT", [Text(str(each.get("pending", 0))) for each in status], right=True),
        ScreenColumn("RUN", [Text(str(each.get("admitted", 0))) for each in status], right=True),
        ScreenColumn("SHARE", [Text(each.get("share") or "-") for each in status], right=True),
        ScreenColumn(f"OF {_MARK} TARGET", shares),
        ScreenColumn("GPUS" if resource == GPU else "CPUS", [_amount(queue, resource) for queue in queues]),
        ScreenColumn("OLDEST", [Text(ages.duration(each.get("oldestWaitSeconds"))) for each in status], right=True),
    ]


def _amount(queue: Document, resource: str) -> Text:
    used, quota = _usage(queue).get(resource, "0"), (queue["spec"].get("quota") or {}).get(resource)
    if quota is None:
        return Text(used)
    return Text.assemble(bar(amounts.fraction(used, quota)), f" {used}/{quota}")


def _pick_columns(picks: Sequence[Document]) -> list[ScreenColumn]:
    whens = [pick.get("when", "") for pick in picks]
    return [
        ScreenColumn("NEXT", [Text(str(pick["pick"])) for pick in picks], right=True),
        ScreenColumn("JOB", [Text(pick["job"], "bold") for pick in picks]),
        ScreenColumn("QUEUE", [Text(pick.get("queue", "-")) for pick in picks]),
        ScreenColumn("WAITED", [Text(ages.duration(pick.get("waitSeconds"))) for pick in picks], right=True),
        ScreenColumn("WHEN", [Text(when, "green" if when == pick_columns.NOW else "") for when in whens]),
        ScreenColumn("DEMAND", [Text(amounts.format_amounts(pick.get("demand"))) for pick in picks]),
    ]  # fmt: skip


def _job_columns(jobs: Sequence[Document], training: Mapping[JobKey, Document], now: datetime) -> list[ScreenColumn]:
    shape = {column.title: column for column in job_columns.job_columns(now, {})}
    shown = [
        ScreenColumn(title, [Text(str(shape[title].text(job))) for job in jobs])
        for title in ("QUEUE", "PHASE", "PODS", "RUNTIME", "REASON")
    ]
    steps = [Text(job_facts.progress(training.get(job_ref.key(job), {})) or "-") for job in jobs]
    names = [Text(job["metadata"]["name"], "bold") for job in jobs]
    return [ScreenColumn("JOB", names), *shown[:-1], ScreenColumn("TRAINING", steps), shown[-1]]


def _table(shape: Sequence[ScreenColumn]) -> list[Text]:
    header = _row([(Text(column.title, "dim"), column) for column in shape])
    count = len(shape[0].cells)
    return [header, *(_row([(column.cells[row].copy(), column) for column in shape]) for row in range(count))]


def _row(cells: Sequence[tuple[Text, ScreenColumn]]) -> Text:
    line = Text()
    for number, (cell, column) in enumerate(cells):
        space = " " * (column.width - cell.cell_len)
        line.append(GAP if number else "")
        line.append_text(Text.assemble(space, cell) if column.right else Text.assemble(cell, space))
    line.rstrip()
    return line


def bar(part: float | None, mark: float | None = None) -> Text:
    """Return a bar that is full to a part (from 0 to 1, more counts as 1), with a mark at another part."""
    filled = round(BAR * min(max(part or 0.0, 0.0), 1.0))
    cells = [_FULL] * filled + [_EMPTY] * (BAR - filled)
    styles = ["green"] * filled + ["dim"] * (BAR - filled)
    if mark is not None:
        place = min(BAR - 1, int(BAR * min(max(mark, 0.0), 1.0)))
        cells[place], styles[place] = _MARK, "bold"
    return Text.assemble(*zip(cells, styles, strict=True))
