"""A real browser that looks at the dashboard: Debian's chromium, without a window, and the dashboard that it looks at.

One rule: a page that writes to the console, raises an error, or asks another server fails the test.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from coordinator.local import die_with_parent
from tests.support.acceptance.stack import torchq_command
from tests.support.waiting import patient, until

VARIABLE = "TORCHQ_TEST_CHROMIUM"
PROGRAM = os.environ.get(VARIABLE) or shutil.which("chromium") or ""
NONE = f"needs a browser: Debian's package chromium, or its program in {VARIABLE}"
SECONDS = 15.0
LOST = re.compile("net::ERR_")
"""What a browser writes to the console when a server is away."""
NOT_SHOWN = re.compile("the server responded with a status of 4")
"""What a browser writes to the console about a page that it may not see, or that is not there."""


@contextmanager
def running() -> Iterator[Browser]:
    """Run the browser. Skip the test if the machine has none, unless the variable names one."""
    if not PROGRAM:
        pytest.skip(NONE)
    # The sandbox of chromium refuses to run as root.
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.getuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=arguments)
        expect.set_options(timeout=patient(SECONDS) * 1000)
        try:
            yield browser
        finally:
            browser.close()


class User:
    """Somebody who looks: windows with cookies of their own."""

    def __init__(self, context: BrowserContext, server: str) -> None:
        self._context, self._server = context, server
        self._expected: list[re.Pattern[str]] = []
        self._seen: list[str] = []
        context.set_default_timeout(patient(SECONDS) * 1000)
        context.on("console", self._note_message)
        context.on("weberror", lambda error: self._seen.append(f"error: {error.error}"))
        context.on("request", self._note_request)

    def open(self, path: str = "/") -> Page:
        """Open a page in a new tab."""
        page = self._context.new_page()
        page.goto(self._server + path)
        return page

    def expect_messages(self, pattern: re.Pattern[str]) -> None:
        """Accept such messages on the console from now on."""
        self._expected.append(pattern)

    def check(self) -> None:
        """Fail if a page did what no page does."""
        found = [each for each in self._seen if not any(known.search(each) for known in self._expected)]
        assert not found, found

    def close(self) -> None:
        """Close all windows."""
        self._context.close()

    def _note_message(self, message: ConsoleMessage) -> None:
        self._seen.append(f"console: {message.text}")

    def _note_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self._server).netloc:
            self._seen.append(f"request of another server: {request.url}")


class Dashboard:
    """`torchq dashboard`, as a user runs the command."""

    def __init__(self, port: int, folder: Path, environment: Mapping[str, str]) -> None:
        self._port, self._log, self._environment = port, folder / "dashboard.log", environment
        self._process: subprocess.Popen[bytes] | None = None
        self.opened = ""
        """The path that opens the dashboard once."""

    @property
    def server(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> str:
        """Start the command, and return the path that opens the dashboard."""
        command = torchq_command("dashboard", "--no-open", "-A", "--port", str(self._port))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                die_with_parent.wrap_command(command),
                env=self._environment,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
            )
        self.opened = str(until(self._address, seconds=SECONDS))
        return self.opened

    def kill(self) -> None:
        """Kill the command."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """End the command as Ctrl-C does, and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(patient(SECONDS))

    def said(self) -> str:
        """Return what the command printed."""
        return self._log.read_text()

    def _address(self) -> str:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        found = re.search(rf"{self.server}(/\S*)", self.said())
        return found[1] if found else ""


class Browsers:
    """The users of one dashboard."""

    def __init__(self, browser: Browser, dashboard: Dashboard, cookies: Any) -> None:
        """`cookies` are those of the user who opened the dashboard."""
        self._browser, self._dashboard, self._cookies = browser, dashboard, cookies
        self._users: list[User] = []

    def __call__(self, *, is_stranger: bool = False, script: str = "", **options: Any) -> User:
        """Return the user in a new profile, or a stranger. `script` runs before those of a page, and `options` are
        those of Playwright's contexts."""
        context = self._browser.new_context(storage_state=None if is_stranger else self._cookies, **options)
        if script:
            context.add_init_script(script)
        self._users.append(User(context, self._dashboard.server))
        return self._users[-1]

    def close(self) -> None:
        """Close all windows. Fail if a page did what no page does."""
        for user in self._users:
            user.close()
        for user in self._users:
            user.check()
