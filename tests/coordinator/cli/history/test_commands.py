"""`torchq history` and `torchq usage` on one machine whose cluster is down, over its SQLite file."""

import csv
import json
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest

from coordinator.cli import api_client
from coordinator.local import stack_state
from coordinator.local.stack_state import Files
from coordinator.query.history_answers import MOST_JOBS, PAGE
from coordinator.wording.history_columns import stamp
from crds import timestamps
from history.rows import PoolRow, Row
from history.sql.sql_history import open_history
from tests.support.coordinator.command import Torchq, command, table
from tests.support.history_rows import GPU, hold, job, wait

UIDS = tuple(f"{number}d0c5a2e-7b1f-4f0e-9a51-0c2f8e6b3d7a" for number in range(3))
T = int(time.time()) - 7200


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data folder of a cluster that is down."""
    files = Files(tmp_path)
    files.lock.touch()
    files.layout.kubeconfig.touch()
    return tmp_path


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cluster run, with settings of its own."""
    told = {"settings": {"prices": "nvidia.com/gpu=2", "cost": "jobs"}}
    monkeypatch.setattr(stack_state, "supervisor_pid", lambda _: 1)
    monkeypatch.setattr(api_client, "coordinator", lambda _: lambda _: told)


@pytest.fixture
def torchq(data: Path) -> Torchq:
    return command({"TORCHQ_KUBECONFIG": str(Files(data).layout.kubeconfig), "COLUMNS": "200"})


@pytest.fixture
def record(data: Path) -> Callable[..., None]:
    """Return a function that writes rows, as a recorder that ended an hour ago."""

    def write(*rows: Row) -> None:
        store = open_history(f"sqlite:///{data / 'history.sqlite'}", "")
        store.write(rows)
        store.record_until(T + 3600)
        store.close()

    return write


@pytest.fixture
def three(record: Callable[..., None]) -> None:
    """Record three jobs, two of one name, of two namespaces."""
    record(
        PoolRow(start=T, amounts={GPU: 8}),
        job(
            UIDS[0],
            name="digits",
            namespace="default",
            created=T,
            ended=T + 900,
            outcome="Failed",
            message="exit code 1",
        ),
        wait(UIDS[0], T, T + 300),
        hold(UIDS[0], T + 300, T + 900, 4),
        job(UIDS[1], name="digits", namespace="default", created=T + 1000),
        hold(UIDS[1], T + 1000, None, 2, running=T + 1010),
        job(UIDS[2], name="other", namespace="blue", created=T + 2000, user="ann"),
    )


@pytest.mark.usefixtures("three")
class TestHistory:
    def test_lists_the_jobs_of_the_namespace_and_says_that_the_cluster_is_down(self, torchq: Torchq) -> None:
        found = torchq("history")
        header, newest, oldest = table(found.stdout)
        assert header[:3] == ["NAME", "QUEUE", "OUTCOME"]
        assert (newest[2], newest[-1]) == ("Running", "-")
        assert (oldest[:3], oldest[-3:]) == (["digits", "a", "Failed"], ["exit", "code", "1"])
        assert "note: the cluster is down; history up to 20" in found.stderr
        assert [row[0] for row in table(torchq("history", "-A", "--no-headers").stdout)] == [
            "blue/other",
            "default/digits",
            "default/digits",
        ]

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            (["-n", "blue"], ["other"]),
            (["--outcome", "failed"], ["digits"]),
            (["-A", "--user", "ann"], ["blue/other"]),
            (["-A", "--since", "1m"], ["blue/other", "default/digits"]),
            (["-A", "--queue", "b"], []),
            (["-A", "--limit", "1"], ["blue/other"]),
        ],
    )
    def test_lists_what_is_asked_for(self, torchq: Torchq, options: list[str], names: list[str]) -> None:
        found = torchq("history", "--no-headers", *options)
        assert [row[0] for row in table(found.stdout)] == names
        assert ("older jobs" in found.stderr) == ("--limit" in options)
        assert ("has no such jobs" in found.stderr) == (not names)

    def test_prints_all_for_programs(self, torchq: Torchq) -> None:
        items = json.loads(torchq("history", "-A", "-o", "json").stdout)["items"]
        assert [item["uid"] for item in items] == [UIDS[2], UIDS[1], UIDS[0]]
        rows = [*csv.DictReader(torchq("history", "-A", "-o", "csv", "--sort-by", "submitted").stdout.splitlines())]
        assert [row["HELD"] for row in rows] == ["600", "2600", "0"]

    def test_shows_the_newest_job_of_a_name_or_the_one_of_a_uid(self, torchq: Torchq) -> None:
        newest = torchq("history", "digits").stdout
        assert f"default/digits (uid {UIDS[1]})" in newest
        submitted = stamp(timestamps.format_time(T), UTC)
        assert f"1 other job of this name:\ndigits/{UIDS[0]} of {submitted} (Failed)" in newest
        for handle in (f"digits/{UIDS[0]}", f"default/digits/{UIDS[0]}"):
            assert "0.67 GPU-hours in 1 attempt" in torchq("history", handle).stdout
        assert json.loads(torchq("history", "blue/other", "-o", "json").stdout)["uid"] == UIDS[2]
        assert "there is no job default/other in the history" in torchq("history", "other", code=1).output

    def test_refuses_options_of_lists_for_one_job(self, torchq: Torchq) -> None:
        assert "options of one job follow its name" in torchq("history", "--queue", "a", "digits", code=2).output


def test_programs_get_more_jobs_than_a_page_has(torchq: Torchq, record: Callable[..., None]) -> None:
    record(*(job(f"u{number}", namespace="default", created=T) for number in range(MOST_JOBS + 1)))
    assert len(json.loads(torchq("history", "-o", "json").stdout)["items"]) == MOST_JOBS + 1
    assert len(table(torchq("history", "--no-headers").stdout)) == PAGE


@pytest.mark.usefixtures("three")
def test_usage_adds_up_and_ends_with_the_line_of_the_cluster(torchq: Torchq) -> None:
    query = ("usage", "--since", timestamps.format_time(T))
    found = torchq(*query, TORCHQ_PRICES="nvidia.com/gpu=1.5")
    header, queue, cluster = found.stdout.splitlines()
    assert header.startswith("QUEUE   JOBS   GPU-HOURS   SHARE   TARGET")
    assert queue.split()[:7] == ["a", "2", "2.11", "100%", "100%", "0", "3.17"]
    assert cluster.startswith("cluster: 8.00 GPU-hours")
    assert "27% paid" in cluster
    assert "note: the cluster is down; history up to" in found.stderr
    document = json.loads(torchq(*query, "--by", "namespace", "-o", "json").stdout)
    assert [item["name"] for item in document["items"]] == ["default"]
    assert document["items"][0]["held"]["seconds"] == {GPU: str(4 * 600 + 2 * 2600)}
    assert torchq(*query, "-o", "csv").stdout.startswith("QUEUE,JOBS,GPU-HOURS,SHARE,TARGET,IDLE GROWTH,PRICE,")


@pytest.mark.usefixtures("three", "runs")
def test_prices_are_those_of_the_cluster_while_it_runs(torchq: Torchq) -> None:
    found = torchq("usage", "--since", timestamps.format_time(T), "-o", "csv", TORCHQ_PRICES="nvidia.com/gpu=1.5")
    [row] = csv.DictReader(found.stdout.splitlines())
    assert (row["GPU-HOURS"], row["PRICE"]) == ("2.1111", "4.2222")


def test_a_month_without_history_says_so(torchq: Torchq, record: Callable[..., None]) -> None:
    record()
    assert "no job has held room in this time" in torchq("usage").stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["usage", "--month", "2026-13"], "--month: '2026-13' is not a month: write YYYY-MM"),
        (["usage", "--since", "1926-01-01"], "--since: 1926-01-01 is not in the years from 1971"),
        (["usage", "--until", "1d"], "--until: name since, too"),
        (["usage", "--by", "nothing"], "'nothing' is not one of 'queue', 'namespace', 'user'"),
        (["history", "--tz", "Moon"], "--tz: 'Moon' is not a time zone"),
        (["history", "digits", "--tz", "Moon"], "--tz: 'Moon' is not a time zone"),
    ],
)
def test_what_is_wrong_is_said_by_its_option(
    torchq: Torchq, record: Callable[..., None], options: list[str], words: str
) -> None:
    record()
    assert words in torchq(*options, code=2).stderr


def test_a_cluster_that_never_had_a_recorder_says_how_to_begin(torchq: Torchq, data: Path) -> None:
    refusal = torchq("history", code=1).stderr
    assert f"the local cluster in {data} has no history yet: it begins with the next `torchq local up" in refusal


@pytest.mark.usefixtures("runs")
def test_a_cluster_that_has_just_started_says_where_its_recorder_is_shown(torchq: Torchq, data: Path) -> None:
    refusal = torchq("usage", code=1).stderr
    assert f"has no history yet: `torchq local status --data {data}` shows its recorder" in refusal


def test_files_of_another_user_are_refused_in_words(
    torchq: Torchq, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_file(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", is_file)
    assert f"the files in {data} cannot be read: a local cluster" in torchq("history", code=1).stderr


def test_a_database_that_is_none_is_refused_in_words(torchq: Torchq, data: Path) -> None:
    (data / "history.sqlite").write_text("not a database, but long enough to be read as one" * 100)
    assert "Traceback" not in (refusal := torchq("history", code=1).stderr)
    assert refusal.startswith("Error: ")
