"""The pure functions of the client: retries, requests, statuses, rate limit, informer back-off, lines of a watch."""

import itertools
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.api_resources import NODES, PODS, TORCHJOBS
from kube import error_answers, errors, requests, retries, streams
from kube.api import ALL_OUTPUT, LogOptions
from kube.requests import Request
from kube.retries import Failure, WatchOutcome, failures_after
from kube.settings import ConnectionSettings, InformerSettings, RetrySettings
from kube.transport import Limiter

SETTINGS = RetrySettings(attempts=5, base_seconds=1, cap_seconds=5, retry_after_cap_seconds=30)
LOST = Failure()
NOT_SENT = Failure(sent=False)


@pytest.mark.parametrize(
    ("failure", "repeatable", "again"),
    [
        (LOST, True, True),
        (LOST, False, False),
        (NOT_SENT, True, True),
        (NOT_SENT, False, True),
        (Failure(429), True, True),
        (Failure(429), False, True),
        (Failure(500), True, True),
        (Failure(500), False, False),
        (Failure(503), True, True),
        (Failure(504), False, False),
        (Failure(409), True, False),
        (Failure(404), True, False),
        (Failure(401), True, False),
        (Failure(302), True, False),
        (Failure(429, retry_after=30), True, True),
        (Failure(429, retry_after=31), True, False),
    ],
)
def test_requests_are_retried_by_failure_and_repeatability(failure: Failure, repeatable: bool, again: bool) -> None:
    assert (retries.wait(SETTINGS, failure, attempt=1, repeatable=repeatable, jitter=0.5) is not None) is again


def test_backoff_grows_to_its_cap_until_the_attempts_are_spent() -> None:
    waits = [retries.wait(SETTINGS, LOST, attempt=attempt, repeatable=True, jitter=1.0) for attempt in range(1, 7)]
    assert waits == [1, 2, 4, 5, None, None]


@pytest.mark.parametrize(("elapsed", "again"), [(0.0, True), (9.9, True), (10.0, False), (60.0, False)])
def test_server_that_takes_long_to_fail_is_not_asked_again(elapsed: float, again: bool) -> None:
    found = retries.wait(SETTINGS, Failure(500), attempt=1, repeatable=True, jitter=0.5, elapsed=elapsed)
    assert (found is not None) is again


@given(
    attempt=st.integers(1, 4),
    jitter=st.floats(0, 1, exclude_max=True),
    asked=st.none() | st.floats(0, 30),
)
def test_wait_includes_all_of_retry_after_and_a_bounded_backoff(
    attempt: int, jitter: float, asked: float | None
) -> None:
    wait = retries.wait(SETTINGS, Failure(429, retry_after=asked), attempt=attempt, repeatable=False, jitter=jitter)
    assert wait is not None
    longest = min(5, 2 ** (attempt - 1))
    assert longest / 2 <= wait - (asked or 0) + 1e-9
    assert wait <= (asked or 0) + longest


def test_backoff_does_not_overflow() -> None:
    assert retries.backoff(0.2, 30, attempt=10**9, jitter=0) == 15


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("", None), ("2", 2), ("0", 0), ("-1", None), ("nan", None), ("inf", None), ("Wed, 21 Oct", None)],
)
def test_retry_after_header_is_parsed(header: str | None, seconds: float | None) -> None:
    assert retries.retry_after(header) == seconds


@pytest.mark.parametrize(
    ("request_", "repeatable"),
    [
        (requests.get(PODS, "p", "a"), True),
        (requests.create(PODS, {"metadata": {"name": "p"}}, "a", dry_run=False), True),
        (requests.create(PODS, {"metadata": {"generateName": "p-"}}, "a", dry_run=False), False),
        (requests.create(PODS, {}, "a", dry_run=True), True),
        (requests.patch(NODES, "n", {}, "", subresource="", resource_version="", dry_run=False), True),
        (requests.patch(NODES, "n", [], "", subresource="", resource_version="", dry_run=False), False),
        (requests.patch(NODES, "n", [], "", subresource="", resource_version="", dry_run=True), True),
        (requests.delete(PODS, "p", "a", uid="", grace_period_seconds=None), True),
    ],
)
def test_request_is_repeatable_only_if_it_may_safely_run_twice(request_: Request, repeatable: bool) -> None:
    assert request_.repeatable is repeatable


@pytest.mark.parametrize(
    ("request_", "path", "action"),
    [
        (
            requests.page(PODS, "", label_selector="", field_selector="", limit=0, token=""),
            "/api/v1/pods",
            "list pods",
        ),
        (
            requests.page(PODS, "a", label_selector="x in (y,z)", field_selector="", limit=5, token="a/b="),
            "/api/v1/namespaces/a/pods?labelSelector=x+in+%28y%2Cz%29&limit=5&continue=a%2Fb%3D",
            "list pods in namespace a",
        ),
        (
            requests.patch(TORCHJOBS, "j", {}, "a", subresource="status", resource_version="", dry_run=True),
            "/apis/train.distributed.io/v1alpha1/namespaces/a/torchjobs/j/status?fieldValidation=Strict&dryRun=All",
            "patch torchjobs/status 'j' (train.distributed.io) in namespace a",
        ),
        (requests.get(NODES, "n 1?", "ignored"), "/api/v1/nodes/n%201%3F", "get nodes 'n 1?'"),
        (
            requests.logs("p", "a", "", ALL_OUTPUT),
            "/api/v1/namespaces/a/pods/p/log",
            "read the log of pods 'p' in namespace a",
        ),
        (
            requests.logs("p", "a", "c", LogOptions(True, 3, "2026-01-01T00:00:00Z", True, True), follow=True),
            "/api/v1/namespaces/a/pods/p/log?container=c&previous=true&follow=true&tailLines=3&timestamps=true"
            "&sinceTime=2026-01-01T00%3A00%3A00Z&positions=true",
            "read the log of pods 'p' in namespace a",
        ),
        (
            requests.job_runs("a", "u1"),
            "/torchq/logs/a/u1",
            "list the logs of job u1 in namespace a",
        ),
        (
            requests.job_log("a", "u1", "v.torch.0", LogOptions(tail=0)),
            "/torchq/logs/a/u1/v.torch.0?tailLines=0",
            "read the log of run v.torch.0 of job u1 in namespace a",
        ),
        (
            requests.service("a", "http:desk:http", "/v1/next?n=3", {}),
            "/api/v1/namespaces/a/services/http:desk:http/proxy/v1/next?n=3",
            "ask service 'desk' in namespace a",
        ),
        (
            requests.account_token("a", "torchq-user", "torchq", 600),
            "/api/v1/namespaces/a/serviceaccounts/torchq-user/token",
            "create serviceaccounts/token 'torchq-user' in namespace a",
        ),
    ],
)
def test_requests_have_a_path_and_a_description(request_: Request, path: str, action: str) -> None:
    assert (request_.path, request_.action) == (path, action)


def test_create_of_a_namespaced_object_requires_a_namespace() -> None:
    with pytest.raises(errors.Invalid, match=r"metadata\.namespace: pods need a namespace"):
        requests.create(PODS, {"metadata": {"name": "p"}}, "", dry_run=False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(code=st.integers(300, 599), body=st.binary() | json_values.map(orjson.dumps))
def test_any_failed_answer_becomes_a_cluster_error(code: int, body: bytes) -> None:
    error = error_answers.error(code, error_answers.read(body), "get pods")
    assert isinstance(error, errors.ClusterError)
    assert str(error)


@given(
    code=st.sampled_from([400, 404, 409, 422]),
    message=json_values,
    reason=json_values,
    details=json_values | st.dictionaries(st.sampled_from(["name", "causes"]), json_values | st.lists(json_values)),
)
def test_malformed_status_becomes_a_cluster_error(code: int, message: Any, reason: Any, details: Any) -> None:
    body = orjson.dumps({"message": message, "reason": reason, "details": details})
    assert isinstance(error_answers.error(code, error_answers.read(body), "get pods"), errors.ClusterError)


@given(
    lines=st.lists(st.binary().filter(lambda line: b"\n" not in line and line.strip())),
    cut=st.lists(st.integers(0, 60)),
)
def test_lines_are_the_same_however_the_stream_is_split(lines: list[bytes], cut: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(text), *(edge for edge in cut if edge < len(text))})
    pieces = [text[left:right] for left, right in itertools.pairwise(edges)]
    assert list(streams.lines([*pieces, b"unfinished"])) == [line.strip() for line in lines]


def test_invalid_watch_line_raises_server_error() -> None:
    for line in (b"<html>\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":null}\n'):
        with pytest.raises(errors.ServerError, match="no event"):
            list(streams.events([line], "watch pods"))


@pytest.mark.parametrize(
    ("outcome", "after"),
    [
        (WatchOutcome(seconds=240, planned_seconds=240), 0),
        (WatchOutcome(seconds=6, planned_seconds=240), 0),
        (WatchOutcome(seconds=1, planned_seconds=1), 0),
        (WatchOutcome(seconds=6, planned_seconds=240, failed=True), 1),
        (WatchOutcome(seconds=0.1, planned_seconds=240, objects=3), 1),
        (WatchOutcome(seconds=0.1, planned_seconds=240, objects=3, failed=True), 1),
        (WatchOutcome(seconds=0.1, planned_seconds=240), 8),
        (WatchOutcome(seconds=0.1, planned_seconds=240, failed=True), 8),
        (WatchOutcome(failed=True), 8),
    ],
)
def test_informer_counts_failures_by_watch_outcome(outcome: WatchOutcome, after: int) -> None:
    assert failures_after(7, outcome, healthy_seconds=5) == after


def test_limiter_allows_a_burst_and_then_its_rate() -> None:
    now = [100.0]
    limiter = Limiter(10, 3, clock=lambda: now[0])
    assert [limiter.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    now[0] += 0.2
    assert limiter.reserve() == pytest.approx(0.1)
    now[0] += 1000
    assert [limiter.reserve() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_limiter_without_a_rate_never_waits() -> None:
    limiter = Limiter(0, 1, clock=lambda: 0.0)
    assert {limiter.reserve() for _ in range(1000)} == {0.0}


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: ConnectionSettings(read_timeout=0), "read_timeout"),
        (lambda: ConnectionSettings(requests_per_second=-1), "requests_per_second"),
        (lambda: RetrySettings(attempts=0), r"retries\.attempts"),
        (lambda: RetrySettings(cap_seconds=-1), r"retries\.cap_seconds"),
        (lambda: InformerSettings(watch_seconds=0), "watch_seconds"),
        (lambda: InformerSettings(resync_seconds=-1), "resync_seconds"),
    ],
)
def test_error_names_the_invalid_setting(make: Any, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()
