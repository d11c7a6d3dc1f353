"""The server of the dashboard on loopback: who gets a page, what every answer says, and what a client may cost."""

import asyncio
import contextlib
import http.client
import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPException
from typing import Any

import orjson
import pytest

from coordinator.access.readers import Reader
from coordinator.dashboard import connections, protection, routes, server
from coordinator.dashboard.access.logins import COOKIE, SECURE_COOKIE, Logins
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Download, Element, Page
from coordinator.dashboard.routes import PageRoute
from coordinator.dashboard.visitors import OneVisitor
from coordinator.errors import CoordinatorError
from coordinator.query.bounds import Bounds
from crds.api_resources import TENANT_QUEUES
from kube import errors
from tests.coordinator.dashboard.access.test_logins import ACCOUNT, GOOD, Server, visitor
from tests.support.coordinator import dashboard_site
from tests.support.coordinator.dashboard_site import ADDRESS, Browser, FixedReadings, messages, secret_of
from tests.support.waiting import patient, until

pytestmark = pytest.mark.servers
TLS = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
TEXTS = {"problems": ()}


def fail(error: Exception) -> Any:
    def view(_asked: Asked) -> Page:
        raise error

    return view


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be pages that fail, beside a page with what the reading has."""

    def view(asked: Asked) -> Page:
        return Page("refusal", "T", TEXTS, {"text": f"reading {asked.reading.number}", "code": asked.reading.number})

    kinds = [
        PageRoute("/", view),
        PageRoute("/ns/{namespace}", view),
        PageRoute("/defect", fail(KeyError("a secret thing"))),
    ]
    kinds += [PageRoute("/away", fail(CoordinatorError("the coordinator <b>sleeps</b>")))]
    kinds += [PageRoute("/refused", fail(errors.Forbidden("pods are forbidden")))]
    monkeypatch.setattr(routes, "ROUTES", tuple(kinds))


@pytest.fixture
def readings() -> FixedReadings:
    return FixedReadings()


@pytest.fixture
def by_hand(readings: FixedReadings) -> Iterator[tuple[OneVisitor, Browser]]:
    visitors = OneVisitor(visitor("me", None))
    with dashboard_site.running(visitors, readings) as port:
        yield visitors, Browser(port)


@pytest.fixture
def site(readings: FixedReadings) -> Iterator[Browser]:
    """Run a dashboard that people log in to."""
    with dashboard_site.running(Logins(Server().as_owner, visitor), readings) as port:
        yield Browser(port)


def opened(by_hand: tuple[OneVisitor, Browser]) -> Browser:
    visitors, browser = by_hand
    assert browser.get(f"/open?code={visitors.code}").code == 303
    return browser


def logged_in(browser: Browser) -> Browser:
    assert browser.post("/login", {"token": GOOD, "next": "/"}).code == 303
    return browser


def test_the_printed_address_opens_once_and_a_cookie_after_that(by_hand: tuple[OneVisitor, Browser]) -> None:
    visitors, browser = by_hand
    code = visitors.code
    assert browser.get("/").code == 401
    assert browser.get("/open?code=wrong").code == 403
    given = browser.get(f"/open?code={code}")
    assert (given.code, given.headers["Location"]) == (303, "/")
    assert [part in given.cookies[0] for part in ("HttpOnly", "SameSite=Strict", "Path=/")] == [True] * 3
    assert "reading 1" in browser.get("/").text
    again = browser.get(f"/open?code={code}")
    assert (again.code, again.headers.get("Location")) == (303, "/"), (
        "the browser that opened the address may reopen it"
    )
    assert Browser(browser.port).get(f"/open?code={code}").code == 403
    assert Browser(browser.port).get("/").code == 401
    assert browser.post("/login", {"token": GOOD}).code == 405, "who runs it by hand needs no login"


def test_a_signal_counts_from_the_moment_at_which_the_address_is_told(readings: FixedReadings) -> None:
    steps: list[str] = []

    async def stopped() -> None:
        steps.append("heeds signals")

    frame = server.Frame("here", ADDRESS, OneVisitor(visitor("me", None)), readings)  # type: ignore[arg-type]
    asyncio.run(server.serve(frame, 0, lambda _: steps.append("tells the port"), stopped))
    assert steps == ["heeds signals", "tells the port"]


def test_a_login_leads_back_to_the_page_and_no_answer_has_the_token(site: Browser) -> None:
    form = site.get("/ns/team-a?page=2")
    assert form.code == 200
    assert 'name="next" value="/ns/team-a?page=2"' in form.text
    assert "not encrypted" in form.text
    wrong = site.post("/login", {"token": "bad", "next": "/ns/team-a?page=2"})
    assert (wrong.code, "does not accept this token" in wrong.text) == (403, True)
    assert 'value="bad"' not in wrong.text
    given = site.post("/login", {"token": GOOD, "next": "/ns/team-a?page=2"})
    assert (given.code, given.headers["Location"]) == (303, "/ns/team-a?page=2")
    page = site.get("/ns/team-a?page=2")
    assert ACCOUNT in page.text
    assert [GOOD in str(each) for each in (form, wrong, given, page)] == [False] * 4


@pytest.mark.parametrize("headers", [{}, TLS], ids=["plain", "tls"])
def test_the_cookie_of_a_login_fits_the_connection(site: Browser, headers: dict[str, str]) -> None:
    site.headers = headers
    assert ("not encrypted" in site.get("/login").text) == (not headers)
    [cookie] = site.post("/login", {"token": GOOD}).cookies
    name, parts = (SECURE_COOKIE, {"Secure"}) if headers else (COOKIE, set())
    assert cookie.startswith(f"{name}=")
    assert {part.strip() for part in cookie.split(";")[1:]} == {"HttpOnly", "SameSite=Strict", "Path=/"} | parts
    assert site.get("/").code == 200


def test_a_logout_ends_the_session_and_needs_the_value_of_the_page(site: Browser) -> None:
    secret = secret_of(logged_in(site).get("/").text)
    assert secret
    assert site.post("/logout", {"secret": "wrong"}).code == 403
    assert ACCOUNT in site.get("/").text
    kept = dict(site.cookies)
    assert site.post("/logout", {"secret": secret}).code == 303
    site.cookies = kept
    assert 'action="/login"' in site.get("/").text


@pytest.mark.parametrize(
    "path", ["/", "/login", "/nowhere", "/defect", "/away", "/static/x/dashboard.js", "/static/x/none", "/static/"]
)
def test_every_answer_closes_what_a_page_may_do(site: Browser, path: str) -> None:
    for answer in (site.get(path), logged_in(site).get(path), site.get(path, Host="evil.example")):
        assert {**protection.HEADERS, **answer.headers, "Cache-Control": "no-store"} == {
            **answer.headers, "Cache-Control": "no-store"
        }  # fmt: skip
        assert answer.headers["Server"] == "torchq"


def test_a_request_for_another_host_or_from_another_site_is_refused(site: Browser) -> None:
    logged_in(site)
    assert site.get("/", Host="evil.example").code == 403
    for path in ("/login", "/logout", "/stream"):
        assert site.post(path, {"token": GOOD}, Origin="http://evil.example").code == 403
        assert site.post(path, {"token": GOOD}, Origin="null").code == 403
    assert site.ask("PUT", "/").code == 405
    assert site.ask("DELETE", "/ns/a").code == 405


def test_where_the_host_is_named_only_that_host_is_answered(readings: FixedReadings) -> None:
    names = frozenset({"torchq.example.org"})
    with dashboard_site.running(Logins(Server().as_owner, visitor), readings, names) as port:
        assert Browser(port).get("/").code == 403
        browser = Browser(port, headers=TLS, host="torchq.example.org")
        assert logged_in(browser).get("/").code == 200


def test_a_link_of_another_site_leads_to_the_page_all_the_same(site: Browser) -> None:
    elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    answer = Browser(site.port).get("/ns/a?x=<b>", **elsewhere)
    assert answer.code == 200
    assert '<meta http-equiv="refresh" content="0">' in answer.text
    assert 'href="/ns/a?x=' in answer.text
    assert "x=<b>" not in answer.text
    assert ACCOUNT in logged_in(site).get("/", **elsewhere).text


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [("/defect", 500, server.FAILED), ("/away", 503, "the coordinator &lt;b&gt;sleeps"),
     ("/refused", 403, "pods are forbidden"), ("/nowhere", 404, "no such page"),
     ("/?" + "&".join(f"a{number}=b" for number in range(99)), 400, "cannot be read")],
)  # fmt: skip
def test_what_fails_is_told_in_words(
    site: Browser, path: str, code: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = logged_in(site).get(path)
    assert (answer.code, text in answer.text) == (code, True)
    assert "Traceback" not in answer.text
    assert "secret thing" not in answer.text
    assert ("secret thing" in caplog.text) == (code == 500)


def test_browsers_count_ages_by_the_clock_of_the_cluster(readings: FixedReadings) -> None:
    visitors = OneVisitor(visitor("me", None))
    frame = server.Frame("here", ADDRESS, visitors, readings, clock=lambda: 3600.0)  # type: ignore[arg-type]
    with dashboard_site.answering(frame) as port, opened((visitors, Browser(port))).stream("/", "") as stream:
        assert stream.headers.get_all("Date") == ["Thu, 01 Jan 1970 01:00:00 GMT"]


def test_a_stream_sends_changes_and_ends_with_the_session(site: Browser, readings: FixedReadings) -> None:
    page = logged_in(site).get("/")
    with site.stream("/", secret_of(page.text)) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert stream.headers["Content-Security-Policy"]
        assert Browser(site.port, cookies=site.cookies).post("/logout", {"secret": secret_of(page.text)}).code == 303
        readings.read()
        assert next(messages(stream)) == b"event: end"


@pytest.mark.parametrize("secret", ["", "wrong", "é"])
def test_a_page_of_an_earlier_login_loads_itself_again(site: Browser, secret: str) -> None:
    with logged_in(site).stream("/", secret.encode().decode("latin-1")) as stream:
        assert [*messages(stream)] == [b"event: end", b"data:"]


def test_a_stream_of_a_page_that_is_not_there_ends(site: Browser) -> None:
    page = logged_in(site).get("/")
    with site.stream("/nowhere", secret_of(page.text)) as stream:
        assert next(messages(stream)) == b"event: end"


def test_a_defect_under_an_open_page_ends_the_stream_and_not_the_server(
    site: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    page = logged_in(site).get("/")
    # The connection ends in the middle.
    with site.stream("/defect", secret_of(page.text)) as stream, contextlib.suppress(OSError, HTTPException):
        assert [*messages(stream)] == []
    assert "secret thing" in caplog.text
    assert site.get("/").code == 200


@pytest.mark.parametrize(("body", "code"), [(b"{", 400), (b"x" * (server.BODY_BYTES + 1), 413)])
def test_a_body_is_bounded_and_says_which_page_is_open(site: Browser, body: bytes, code: int) -> None:
    assert logged_in(site).ask("POST", "/stream", body).code == code
    assert site.post("/login", {"token": "a" * server.FORM_BYTES}).code == 413


def test_a_client_that_sends_nothing_is_let_go(readings: FixedReadings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(server, "BODY_SECONDS", 0.1)
    with dashboard_site.running(Logins(Server().as_owner, visitor), readings) as port:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: "):
            with socket.create_connection((ADDRESS, port), timeout=patient(30)) as silent:
                silent.sendall(sent)
                with contextlib.suppress(ConnectionResetError):
                    assert silent.recv(1) == b""
        assert Browser(port).ask("POST", "/stream", None, **{"Content-Length": "10"}).code == 408


def test_connections_are_bounded(readings: FixedReadings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with dashboard_site.running(Logins(Server().as_owner, visitor), readings) as port:
        held = [http.client.HTTPConnection(ADDRESS, port, timeout=patient(30)) for _ in range(3)]
        for each in held:
            each.request("GET", "/login")
            assert each.getresponse().read()
        with socket.create_connection((ADDRESS, port), timeout=patient(30)) as further:
            assert further.recv(1) == b""
        held.pop().close()
        until(lambda: _is_answered(port))
        for each in held:
            each.close()


def _is_answered(port: int) -> bool:
    try:
        return Browser(port).get("/login").code == 200
    except (OSError, HTTPException):
        return False


def test_no_log_has_a_token_a_cookie_or_a_code(
    site: Browser, by_hand: tuple[OneVisitor, Browser], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "aiohttp")
    code = by_hand[0].code
    opened(by_hand).get("/defect")
    logged_in(site).get("/defect?token=in-an-address")
    cookie = site.cookies[COOKIE]
    with socket.create_connection((ADDRESS, site.port), timeout=patient(30)) as raw:
        raw.sendall(f"GET / HTTP/1.1\r\nHost: a\r\nCookie: {COOKIE}={cookie}\r\nno header {GOOD}\r\n\r\n".encode())
        answer = http.client.HTTPResponse(raw)
        answer.begin()
        assert (answer.status, answer.read().decode()) == (400, connections.NO_REQUEST)
        assert {**answer.headers, **protection.HEADERS} == {**answer.headers}
    secrets = [code, GOOD, cookie, "in-an-address", *by_hand[1].cookies.values()]
    assert ACCOUNT in caplog.text
    assert [secret for secret in secrets if secret in caplog.text] == []


def test_a_namespace_that_the_visitor_may_not_list_has_no_page(
    readings: FixedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    loads = PageRoute("/ns/{namespace}", fail(AssertionError()), lambda *asked: looked.append(asked))
    monkeypatch.setattr(routes, "ROUTES", (loads,))

    def nobody(name: str, owner: Any) -> Any:
        return replace(visitor(name, owner), bounds=lambda _: Bounds(Reader(), lambda _: False, lambda _: False))

    with dashboard_site.running(Logins(Server().as_owner, nobody), readings) as port:
        assert logged_in(Browser(port)).get("/ns/team-b").code == 404
    assert looked == []


def test_a_page_stays_when_nobody_says_whether_it_may_have_buttons(
    readings: FixedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def may(_: Any) -> bool:
        raise errors.Unauthorized("the token of the kubeconfig has ended")

    def view(asked: Asked) -> Page:
        return Page("refusal", "T", TEXTS, {"text": f"may act: {asked.may_act}", "code": 0})

    monkeypatch.setattr(routes, "ROUTES", (PageRoute("/q/{name}", view, lambda *_: None, TENANT_QUEUES),))
    visitors = OneVisitor(replace(visitor("me", None), may_act=True, may=may))
    with dashboard_site.running(visitors, readings) as port:
        assert "may act: False" in opened((visitors, Browser(port))).get("/q/a").text


def test_pages_are_made_once_for_visitors_who_see_the_same(
    readings: FixedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    views = routes.ROUTES[0].view

    def view(asked: Asked) -> Page:
        made.append(asked.reading.number)
        return views(asked)

    monkeypatch.setattr(routes, "ROUTES", (PageRoute("/", view),))
    with dashboard_site.running(Logins(Server().as_owner, visitor), readings) as port:
        browser = logged_in(Browser(port))
        for _ in range(3):
            browser.get("/")
        readings.read()
        browser.get("/")
    assert made == [1, 2]


def test_an_address_of_a_file_is_answered_with_the_file(site: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def view(_: Asked) -> Page:
        return Page(
            "refusal", "T", {"problems": ()}, {"text": "", "code": 0}, Download('a"\r\n;é.csv', "text/csv", "a,ü\n")
        )

    monkeypatch.setattr(routes, "ROUTES", (PageRoute("/a.csv", view),))
    answer = logged_in(site).get("/a.csv")
    assert (answer.code, answer.text) == (200, "a,ü\n")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="a_____.csv"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_change_is_sent_as_the_script_takes_it(
    site: Browser, readings: FixedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def view(asked: Asked) -> Page:
        problems = tuple(
            Element(f"problem-{part}", "problem", (part, text, "")) for part, text in asked.reading.problems.items()
        )
        return Page("refusal", "T", {"problems": problems}, {"text": "", "code": 0})

    monkeypatch.setattr(routes, "ROUTES", (PageRoute("/", view),))
    page = logged_in(site).get("/")
    with site.stream("/", secret_of(page.text)) as stream:
        readings.read(problems={"redis": "away \u202e<script>\x1b[2J"})
        [change] = orjson.loads(next(messages(stream)).removeprefix(b"data: "))
    assert (change["id"], change["section"], change["before"]) == ("problem-redis", "problems", "")
    assert "away \\u202e&lt;script&gt;\\x1b[2J" in change["html"]
