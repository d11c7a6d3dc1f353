"""A page behind a proxy that holds each answer back until it is whole, in a real browser."""

import contextlib
import http.client
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from playwright.sync_api import Browser, expect

from coordinator.dashboard.visitors import OneVisitor
from tests.coordinator.dashboard.access.test_logins import visitor
from tests.support.acceptance.browser import User
from tests.support.coordinator import dashboard_site
from tests.support.coordinator.dashboard_site import ADDRESS, FixedReadings
from tests.support.waiting import patient


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a port of this machine."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__((ADDRESS, 0), Passage)
        self.behind = port


class Passage(BaseHTTPRequestHandler):
    """One request."""

    server: Proxy

    def do_GET(self) -> None:
        """Pass a request on, and its answer once that has ended."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with contextlib.closing(http.client.HTTPConnection(ADDRESS, self.server.behind)) as connection:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            text = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name not in ("Transfer-Encoding", "Connection", "Content-Length", "Date", "Server"):
                self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(text)

    def do_POST(self) -> None:
        """See do_GET."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def holding(port: int) -> Iterator[str]:
    """Run the proxy; yield its address."""
    with Proxy(port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{ADDRESS}:{proxy.server_port}"
        finally:
            proxy.shutdown()
            thread.join(patient(30))


def test_a_page_whose_messages_are_held_back_says_so_and_moves_all_the_same(browser: Browser) -> None:
    readings, visitors = FixedReadings(), OneVisitor(visitor("me", None))
    with dashboard_site.running(visitors, readings) as port, holding(port) as address:
        context = browser.new_context()
        context.clock.install()
        user = User(context, address)
        page = user.open(f"/open?code={visitors.code}")
        status, problems = page.get_by_role("status"), page.get_by_role("list", name="Problems")
        readings.read(problems={"coordinator": "is away"})
        page.clock.fast_forward(31_000)  # a page waits so long for a first sign of life
        expect(problems).to_contain_text("is away")
        expect(status).to_have_text(re.compile("holds messages back: this page moves every 5 s"))
        readings.read(problems={"coordinator": "is still away"})
        page.clock.fast_forward(6_000)
        expect(problems).to_contain_text("is still away")
        user.close()
        user.check()
