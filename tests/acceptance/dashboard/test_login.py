"""Logins of a dashboard in the cluster, in a real browser."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from coordinator.dashboard.access.logins import Logins
from coordinator.dashboard.visitors import Visitor
from tests.coordinator.dashboard import queue_scene
from tests.coordinator.dashboard.access.test_logins import ACCOUNT, GOOD, Server, visitor
from tests.support.acceptance import accessibility
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


def test_the_login_page_is_for_everybody(browser: Browser, site: str) -> None:
    user = User(browser.new_context(), site)
    user.expect_messages(REFUSED)
    page = user.open("/")
    page.get_by_label("Token of the API server").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert accessibility.findings(page) == []
    user.close()
    user.check()


def test_two_people_in_two_browsers_see_each_their_own(browser: Browser) -> None:
    teams = ("team-a", "team-b")
    names = {f"token-of-{team}": f"system:serviceaccount:{team}:torchq-user" for team in teams}
    told = {name: queue_scene.bounds(team) for name, team in zip(names.values(), teams, strict=True)}

    def make(name: str, owner: Any) -> Visitor:
        return replace(visitor(name, owner), bounds=lambda _: told[name])

    picks = [queue_scene.pick(number, f"{team}/job", queue=team) for number, team in enumerate(teams, 1)]
    queues = {count: tuple(queue_scene.queue(team, pending=count) for team in teams) for count in (41, 42, 43)}
    readings = FixedReadings(queue_scene.reading(queues[41], in_order=picks))
    with dashboard_site.running(Logins(Server(names).as_owner, make), readings) as port:
        users = [User(browser.new_context(), f"http://{ADDRESS}:{port}") for _ in teams]
        pages = [user.open("/") for user in users]
        for page, (token, name) in zip(pages, names.items(), strict=True):
            page.get_by_label("Token of the API server").fill(token)
            page.keyboard.press("Enter")
            expect(page.get_by_text(f"as {name}")).to_be_visible()
        readings.read(queues=queues[42])
        for page, own, other in zip(pages, teams, reversed(teams), strict=True):
            expect(page.get_by_role("row").filter(has_text=f"{own}weight")).to_contain_text("42")
            expect(page.get_by_role("table", name="The jobs that go next")).to_contain_text(f"{own}/job")
            expect(page.get_by_role("table", name="The jobs that go next")).to_contain_text("a job of another team")
            assert other not in page.content()
        first, second = pages
        first.get_by_role("button", name="Log out").click()
        expect(first.get_by_role("heading", level=1)).to_contain_text("Log in")
        readings.read(queues=queues[43])
        expect(second.get_by_role("row").filter(has_text="team-bweight")).to_contain_text("43")
        for user in users:
            user.close()
            user.check()
