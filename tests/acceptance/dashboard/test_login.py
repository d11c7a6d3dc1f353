"""Logins of a dashboard in the cluster, in a real browser."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from coordinator.dashboard.access.logins import Logins
from tests.coordinator.dashboard.access.test_logins import ACCOUNT, GOOD, Server, visitor
from tests.support.acceptance.browser import User
from tests.support.coordinator import dashboard_site
from tests.support.coordinator.dashboard_site import ADDRESS, FixedReadings

REFUSED = re.compile("status of 403")


@pytest.fixture
def readings() -> FixedReadings:
    return FixedReadings()


@pytest.fixture
def site(readings: FixedReadings) -> Iterator[str]:
    with dashboard_site.running(Logins(Server().as_owner, visitor), readings) as port:
        yield f"http://{ADDRESS}:{port}"


def test_a_user_logs_in_and_a_logout_in_one_tab_ends_the_others(
    browser: Browser, site: str, readings: FixedReadings
) -> None:
    user = User(browser.new_context(), site)
    user.expect_messages(REFUSED)
    page = user.open("/?page=2")
    expect(page.get_by_label("Token of the API server")).to_be_focused()
    page.keyboard.type("a wrong one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not a token")
    page.keyboard.type(GOOD)
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"as {ACCOUNT}")).to_be_visible()
    assert page.url == f"{site}/?page=2"
    other = user.open("/")
    readings.read(problems={"coordinator": "does not answer"})
    expect(other.get_by_role("list", name="Problems")).to_contain_text("does not answer")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Log in")
    expect(other.get_by_role("heading", level=1)).to_contain_text("Log in")
    user.close()
    user.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_login_page_is_for_everybody(browser: Browser, site: str, scheme: str) -> None:
    user = User(browser.new_context(color_scheme=scheme, viewport={"width": 360, "height": 800}), site)
    user.expect_messages(REFUSED)
    page = user.open("/")
    page.get_by_label("Token of the API server").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    user.close()
    user.check()
