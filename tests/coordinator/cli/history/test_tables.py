"""What people see of the history and of usage."""

import csv
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from coordinator.cli.history import history_commands
from coordinator.cli.output import TableOptions
from coordinator.query import history_answers
from coordinator.query.questions import Document
from coordinator.wording import history_columns as tables
from history.rows import GapRow, PoolRow, QueueRow, Row
from tests.doubles.memory_history import MemoryHistory
from tests.support.history_rows import GPU, hold, job, pod, wait

UTC = ZoneInfo("UTC")
T = 1_795_132_800
"""2026-11-20 00:00 in UTC."""
HOUR = 3600
NOW = T + 24 * HOUR
DAY = "2026-11-20"


def stored(*rows: Row) -> MemoryHistory:
    store = MemoryHistory()
    store.write(rows)
    store.record_until(NOW)
    return store


def listed(*rows: Row, form: str | None = None, zone: ZoneInfo = UTC) -> str:
    items = history_answers.answer_jobs(stored(*rows), {}, None, NOW)["items"]
    return TableOptions(form).table(tables.job_columns(items, zone, everywhere=False), items)


def usage(*rows: Row, by: str = "queue", prices: dict[str, Decimal] | None = None) -> Document:
    query = {"since": f"{DAY}T00:00", "by": by}
    return history_answers.answer_usage(stored(*rows), query, None, NOW, prices or {}, "dominant")


def used(document: Document, form: str | None = None) -> str:
    return TableOptions(form).table(tables.usage_columns(document), tables.usage_lines(document))


DIGITS = (
    job(
        "u1",
        name="digits-x7k2",
        created=T + 10,
        ended=T + 4 * HOUR,
        outcome="Succeeded",
        restarts=1,
        message="all is well",
    ),
    wait("u1", T + 10, T + 730),
    hold("u1", T + 730, T + 3 * HOUR + 850, 8, running=T + 800),
)
BIG = job(
    "u2",
    name="big",
    created=T,
    ended=T + 7800,
    outcome="Cancelled",
    message="cancelled while it waited (WaitingForQuota)",
)
LOST = (
    job(
        "u3", name="sweep-3", created=T - 60, ended=T + 2400, outcome="Deleted", is_approximate=True, message="deleted"
    ),
    hold("u3", T, T + 2400, 8, is_approximate=True),
    GapRow(start=T + 2400, end=T + 3120),
)


def test_a_list_says_what_became_of_jobs_and_why() -> None:
    assert listed(*DIGITS, BIG, wait("u2", T, T + 7800), *LOST).splitlines() == [
        "NAME          QUEUE   OUTCOME     SUBMITTED          WAITED   HELD   GPU-HOURS   RESTARTS   WHY",
        "digits-x7k2   a       Succeeded   2026-11-20 00:00   12m      3h2m   24.27       1          -",
        "big           a       Cancelled   2026-11-20 00:00   2h10m    -      0           0          "
        "cancelled while it waited (WaitingForQuota)",
        "sweep-3       a       Deleted ~   2026-11-19 23:59   0s       40m    5.33        0          "
        "deleted; its end is known to 12m",
    ]


def test_times_are_those_of_a_zone() -> None:
    assert "2026-11-19 19:00" in listed(*DIGITS, zone=ZoneInfo("America/New_York"))


def test_jobs_that_have_not_ended_say_what_they_do() -> None:
    runs = (job("u1", created=T), hold("u1", T, None, running=T + 5))
    starts = (job("u2", created=T + 1), hold("u2", T, None))
    waits = job("u3", created=T + 2, message="queue a has no quota left for the job")
    rows = [line.split(maxsplit=8)[2::6] for line in listed(*runs, *starts, waits).splitlines()[1:]]
    assert [row[0] for row in rows] == ["Waiting", "Admitted", "Running"]
    assert "queue a has no quota left" in listed(waits)


def test_without_gpus_hours_are_those_of_cpus() -> None:
    rows = (job("u1", created=T), hold("u1", T, T + HOUR, charge={"cpu": 1500, "memory": 2**31}))
    header, row = listed(*rows, form="wide").splitlines()
    assert "CPU-HOURS" in header
    assert "GPU" not in header
    assert "1.50" in row
    assert header.split("   ")[-2].strip() == "MEMORY GIB-HOURS"


def test_without_gpus_and_cpus_hours_are_those_of_pods() -> None:
    rows = (job("u1", created=T), hold("u1", T, T + 2 * HOUR, charge={"pods": 3, "jobs": 1}))
    header, row = listed(*rows).splitlines()
    assert ("POD-HOURS" in header, "6.00" in row) == (True, True)
    assert "GPU-HOURS" in listed(job("u1", created=T))


def test_a_spreadsheet_gets_plain_numbers_and_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    evil = job("u4", created=T, ended=T + 9, outcome="Failed", message='=HYPERLINK("http://x")', user="@ann")
    items = history_answers.answer_jobs(stored(*DIGITS, evil), {}, None, NOW)["items"]
    TableOptions("csv").show(tables.job_columns(items, UTC, everywhere=False), items)
    digits, other = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (digits["WAITED"], digits["HELD"], digits["GPU-HOURS"]) == ("720", str(3 * HOUR + 120), "24.2667")
    assert digits["SUBMITTED"] == "2026-11-20T00:00:10Z"
    assert (other["WHY"], other["USER"]) == ('\'=HYPERLINK("http://x")', "'@ann")


def test_one_job_has_each_hold_and_the_pods_that_went_on() -> None:
    rows = (
        job("u1", name="big", created=T, ended=T + 7200, outcome="Failed", message="exit code 1", user="ann"),
        hold("u1", T, T + 3600, 8, workers=2, ended="Resized", unpaid={GPU: 4}, others=2),
        hold("u1", T + 3600, T + 7200, 4, number=2, attempt=2, ended="Failed", is_approximate=True),
        pod("p1", "u1", T + 7200, T + 9000, 2),
        pod("p2", "u1", T + 7200, T + 7200, 2),
        job("u0", name="big", created=T - 5),
    )
    document = history_answers.answer_job(stored(*rows), "red", "big", "", NOW)
    text = history_commands.job_text(document, UTC)
    assert "Held:      2h, 13.00 GPU-hours in 2 attempts" in text
    assert f"8.00        Resized   {GPU}=8 and 2 more (idle growth: {GPU}=4)" in text
    assert "2026-11-20 02:00:00 ~" in text
    assert "1 pod went on after the job:" in text
    assert "\n\n1 other job of this name:\nbig/u0 of 2026-11-19 23:59 (not ended)" in text
    text = history_commands.job_text(document | {"otherCount": 999}, UTC)
    assert "\n999 other jobs of this name; the newest 1, `torchq history -o csv` has all:\nbig/u0 of " in text
    shorter = {**document, "holds": document["holds"][1:], "podCount": 5}
    text = history_commands.job_text(shorter, UTC)
    assert "in 2 attempts (the newest 1 of 2 holds are listed)" in text
    assert "5 pods went on after the job (the newest 1 of 5 pods are listed):" in text


class TestUsage:
    rows = (
        PoolRow(start=T, amounts={GPU: 16}),
        QueueRow(name="a", start=T, version=1, weight=1),
        job("u1", created=T),
        hold("u1", T + 600, T + 600 + 6 * HOUR, 8, unpaid={GPU: 2}),
        wait("u1", T, T + 600),
        GapRow(start=T + 15_000, end=T + 15_840),
    )

    def test_is_one_line_for_each_queue_and_one_for_the_cluster(self) -> None:
        document = usage(*self.rows, prices={GPU: Decimal("1.0")})
        assert used(document).splitlines() == [
            "QUEUE   JOBS   GPU-HOURS   SHARE   TARGET   IDLE GROWTH   PRICE   WAIT P50   P95   FAILED GPU-HOURS",
            "a       1      48.00       100%    100%     12.00         36.00   10m        10m   0",
        ]
        assert tables.cluster_line(document, UTC) == (
            "cluster: 384.00 GPU-hours; 9% paid, 3% idle growth, 1% idle while jobs waited, 87% idle; "
            "not recorded: 2026-11-20 04:10 to 04:24"
        )

    def test_of_users_has_no_targets_and_says_where_the_user_is_not_known(self) -> None:
        header, row = used(usage(*self.rows, by="user")).splitlines()
        assert (header.split()[0], row.split()[0]) == ("USER", "-")
        assert "TARGET" not in header
        assert row.split()[5] == "-"  # no prices

    def test_names_others_last(self) -> None:
        document = history_answers.answer_usage(
            stored(*self.rows), {"since": DAY}, frozenset({"blue"}), NOW, {}, "dominant"
        )
        assert used(document).splitlines()[-1].startswith("others   1      48.00")

    def test_says_that_the_size_of_the_pool_is_not_known_or_since_when_it_is(self) -> None:
        assert "how many GPUs or CPUs the pool had is not known" in tables.cluster_line(usage(*self.rows[1:]), UTC)
        late = usage(PoolRow(start=T + 12 * HOUR, amounts={GPU: 16}), *self.rows[1:])
        assert "192.00 GPU-hours since 2026-11-20 12:00; 0% paid" in tables.cluster_line(late, UTC)

    def test_names_both_days_of_a_gap_over_midnight(self) -> None:
        night = usage(GapRow(start=T - 600, end=T + 600))
        assert tables.cluster_line(night, UTC).endswith("not recorded: 2026-11-19 23:50 to 2026-11-20 00:10")

    def test_names_the_seconds_of_a_gap_within_one_minute(self) -> None:
        short = usage(GapRow(start=T + 605, end=T + 611))
        assert tables.cluster_line(short, UTC).endswith("not recorded: 2026-11-20 00:10:05 to 00:10:11")

    def test_names_the_last_gaps_alone(self) -> None:
        gaps = [GapRow(start=T + day * 24 * HOUR, end=T + day * 24 * HOUR + 60) for day in range(-9, 0)]
        query = {"since": "2026-11-01"}
        document = history_answers.answer_usage(stored(*gaps), query, None, NOW, {}, "dominant")
        assert tables.cluster_line(document, UTC).endswith("2026-11-19 00:00 to 00:01, and 6 earlier times")


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0"), (0.0028, "0.0028"), (24.2667, "24.27"), (8312.4, "8312.40")]
)
def test_hours_are_short(value: float | None, text: str) -> None:
    assert tables.hours(value) == text
