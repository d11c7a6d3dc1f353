"""The pages of the dashboard in a real browser, while jobs and queues change."""

import os
import re
import signal
from itertools import pairwise
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.acceptance.dashboard.conftest import HOSTILE, LINES, Scene
from tests.support import ports
from tests.support.acceptance.browser import LOST, NOT_SHOWN, Browsers, Dashboard, User
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import alive, fresh, until

AWAY = """
Object.defineProperty(document, "hidden", { get: () => window.isAway === true });
window.leave = (isAway) => { window.isAway = isAway; document.dispatchEvent(new Event("visibilitychange")); };
"""
"""Lets a test hide a tab: without windows, browsers show all their tabs at once."""


def row(page: Page, name: str) -> Locator:
    """The row of a queue or of a job in the list of all."""
    table = page.get_by_role("table", name=re.compile("^(Queues with|Jobs, newest)"))
    return table.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


def weight(scene: Scene, value: int) -> None:
    scene.stack.torchq("queue", "set-weight", scene.queue, str(value))


def test_each_page_is_named_and_shows_its_parts(user: User, scene: Scene) -> None:
    page = user.open("/")
    expect(page).to_have_title("Queues · torchq")
    expect(page.get_by_role("table", name="Queues with their shares")).to_contain_text(scene.queue)
    expect(page.get_by_role("table", name="The jobs that go next")).to_contain_text(scene.waiting)
    expect(page.get_by_role("link", name="Queues", exact=True)).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name=scene.queue).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(scene.queue)
    expect(page.get_by_role("table", name="Waiting, in order")).to_contain_text(scene.waiting)
    expect(page.get_by_role("table", name="Admitted")).to_contain_text(scene.running)
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="Jobs")).to_be_visible()
    page.get_by_role("textbox", name="Name", exact=True).fill(scene.waiting)
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("table", name="Jobs, newest first").get_by_role("rowheader")).to_have_count(1)
    page.get_by_role("link", name=scene.waiting).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{scene.waiting} waits")
    expect(page.get_by_role("list", name="Why")).to_contain_text("needs 4 cpu")
    page.get_by_role("link", name="Usage", exact=True).click()
    expect(page.get_by_role("heading", level=2, name="Who has used how much")).to_be_visible()


def test_a_queue_and_a_job_come_and_end_without_a_reload(user: User, scene: Scene, tmp_path: Path) -> None:
    queue, name, gate = fresh("queue"), fresh(), tmp_path / "gate"
    queues, jobs = user.open("/"), user.open("/jobs")
    for page in (queues, jobs):
        page.evaluate("window.isSame = true")
    scene.stack.torchq("queue", "create", queue, "--weight", "2")
    expect(row(queues, queue)).to_contain_text("weight 2")
    scene.stack.submit(job(name, python(LINES, gate, "of a job"), queue=queue, cpu="500m"))
    expect(row(jobs, name)).to_contain_text("Running")
    with jobs.context.expect_page() as opened:
        row(jobs, name).get_by_role("link", name=name).click(modifiers=["ControlOrMeta"])
    page = opened.value
    expect(page.get_by_role("region", name="The last lines of the log")).to_contain_text("of a job")
    gate.touch()
    expect(row(jobs, name)).to_contain_text("Succeeded")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Succeeded")
    scene.stack.torchq("queue", "delete", queue)
    expect(row(queues, queue)).to_have_count(0)
    assert all(each.evaluate("window.isSame") for each in (queues, jobs))


def test_only_the_first_browser_opens_the_address(make_user: Browsers, dashboard: Dashboard, scene: Scene) -> None:
    other = make_user(is_stranger=True)
    other.expect_messages(NOT_SHOWN)
    page = other.open(dashboard.opened)
    expect(page.get_by_role("main")).to_contain_text("was opened already")
    page.goto(f"{dashboard.server}/queues/{scene.queue}")
    expect(page.get_by_role("main")).to_contain_text("not logged in")
    assert scene.queue not in page.content()
    expect(make_user().open("/").get_by_role("main")).to_contain_text(scene.queue)


def test_a_dashboard_that_is_started_again_asks_for_its_new_address(
    browser: Browser, scene: Scene, tmp_path: Path
) -> None:
    with ports.reserve() as port:
        dashboard = Dashboard(port, tmp_path, scene.stack.environment)
        users = Browsers(browser, dashboard, None)
        user = users()
        user.expect_messages(LOST)
        user.expect_messages(NOT_SHOWN)
        try:
            page = user.open(dashboard.start())
            expect(row(page, scene.queue)).to_be_visible()
            dashboard.kill()
            expect(page.get_by_role("status")).to_have_text(re.compile(r"^connection lost since \d"))
            expect(row(page, scene.queue)).to_be_visible()
            path = dashboard.start()
            expect(page.get_by_role("main")).to_contain_text("open the address that the command printed")
            page.goto(dashboard.server + path)
            expect(row(page, scene.queue)).to_be_visible()
        finally:
            dashboard.kill()
        users.close()


def test_a_page_whose_connection_breaks_says_since_when_and_comes_back(user: User, scene: Scene) -> None:
    user.expect_messages(LOST)
    user.open("/").context.route("**/stream", lambda route: route.abort())
    page = user.open("/")
    expect(page.get_by_role("status")).to_have_text(re.compile(r"^connection lost since \d"))
    weight(scene, 5)
    page.context.unroute("**/stream")
    expect(page.get_by_text("connection lost")).to_have_count(0)
    expect(row(page, scene.queue)).to_contain_text("weight 5")


def test_a_coordinator_that_is_away_is_named_and_the_rest_is_shown(user: User, scene: Scene) -> None:
    page, jobs = user.open("/"), user.open("/jobs")
    expect(page.get_by_role("list", name="Problems").get_by_role("listitem")).to_have_count(0)
    os.kill(scene.stack.supervisor(), signal.SIGSTOP)  # it would start another coordinator at once
    try:
        pid = scene.stack.pids()["coordinator"]
        os.kill(pid, signal.SIGTERM)  # another one need not wait for its Lease
        until(lambda: not alive(pid))
        expect(page.get_by_role("list", name="Problems")).to_contain_text("coordinator")
        expect(row(page, scene.queue)).to_be_visible()
        expect(row(jobs, scene.running)).to_be_visible()
    finally:
        os.kill(scene.stack.supervisor(), signal.SIGCONT)
    for each in (page, jobs):
        expect(each.get_by_role("list", name="Problems").get_by_role("listitem")).to_have_count(0)


def test_eight_tabs_of_a_browser_show_what_is_true_once_they_are_looked_at(make_user: Browsers, scene: Scene) -> None:
    user = make_user(script=AWAY)
    tabs = list[Page]()
    for _ in range(8):
        for each in tabs[-1:]:
            each.evaluate("leave(true)")
        tabs.append(user.open("/"))
    weight(scene, 7)
    expect(row(tabs[-1], scene.queue)).to_contain_text("weight 7")
    for before, each in pairwise([tabs[-1], *tabs[:-1]]):
        before.evaluate("leave(true)")
        each.evaluate("leave(false)")
        expect(row(each, scene.queue)).to_contain_text("weight 7")


def test_the_keyboard_alone_reaches_everything(user: User, scene: Scene) -> None:
    page = user.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    expect(page.get_by_role("link", name="To the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    link = row(page, scene.queue).get_by_role("link", name=scene.queue)
    tab_to(page, link)
    weight(scene, 2)
    expect(row(page, scene.queue)).to_contain_text("weight 2")
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(scene.queue)


def test_filters_details_questions_and_all_pages_are_reached_by_the_keyboard(user: User, scene: Scene) -> None:
    page = user.open("/jobs")
    tab_to(page, page.get_by_role("textbox", name="Name", exact=True))
    page.keyboard.type(scene.waiting)
    page.keyboard.press("Enter")
    jobs = page.get_by_role("table", name="Jobs, newest first").get_by_role("rowheader")
    expect(jobs).to_have_text([scene.waiting])
    tab_to(page, jobs.get_by_role("link"))
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text(scene.waiting)
    tab_to(page, page.locator(".life summary"))
    page.keyboard.press("Space")
    expect(page.get_by_role("table", name="The life of the job")).to_be_visible()
    page.goto(page.url)  # to the first of all that has the focus again
    tab_to(page, page.get_by_role("link", name="Hold", exact=True))
    page.keyboard.press("Enter")
    expect(heading).to_contain_text("Hold: job")
    tab_to(page, page.get_by_role("textbox", name="Reason"))
    tab_to(page, page.get_by_role("button", name="Hold the job"))
    tab_to(page, page.get_by_role("link", name="Leave it as it is"))
    page.keyboard.press("Enter")
    expect(heading).to_contain_text(scene.waiting)
    tab_to(page, page.get_by_role("link", name="Usage"))
    page.keyboard.press("Enter")
    expect(heading).to_have_text("Usage")


def tab_to(page: Page, wanted: Locator) -> None:
    """Press the tabulator until an element has the focus."""
    expect(wanted).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if wanted.evaluate("each => each === document.activeElement"):
            break
    expect(wanted).to_be_focused()


def test_the_focus_stays_in_a_row_that_moves(user: User, scene: Scene) -> None:
    other = fresh("other")
    scene.stack.torchq("queue", "create", other, "--weight", "9")
    weight(scene, 1)
    page = user.open("/?sort=-weight")
    names = page.get_by_role("table", name="Queues with their shares").get_by_role("rowheader")
    expect(names).to_contain_text([other, scene.queue])
    link = row(page, scene.queue).get_by_role("link", name=scene.queue)
    link.focus()
    weight(scene, 12)
    expect(names).to_contain_text([scene.queue, other])
    expect(link).to_be_focused()
    # The row moves with its old text.
    page.evaluate(f"apply({{ id: 'queue-{scene.queue}', section: 'queues', before: '' }})")
    assert link.evaluate("each => each === document.activeElement")
    scene.stack.torchq("queue", "delete", other)


def test_what_users_write_is_text(user: User, scene: Scene) -> None:
    page = user.open(f"/jobs/default/{scene.running}")
    log = page.get_by_role("region", name="The last lines of the log")
    expect(log).to_contain_text(HOSTILE)
    expect(page).to_have_title(f"{scene.running} · torchq")
    assert "\u202e" not in log.inner_text()
    links = page.get_by_role("list", name="Links")
    expect(links.get_by_role("link")).to_have_count(1)
    expect(links.get_by_role("link", name="board")).to_have_attribute("href", "https://board.example.com/1")
    assert page.locator("[href^='javascript:' i]").count() == 0


def test_ages_are_right_where_the_clock_of_the_browser_is_wrong(make_user: Browsers, scene: Scene) -> None:
    slow = "const now = Date.now; Date.now = () => now() - 5 * 3600e3;"
    fast = "const now = Date.now; Date.now = () => now() + 5 * 3600e3;"
    for script in (slow, fast):
        page = make_user(script=script).open("/jobs")
        expect(row(page, scene.ended).locator("time.age").first).to_have_text(re.compile(r"^([1-9]|[1-9]\d+)[sm]$"))


def test_pages_are_whole_without_the_script(make_user: Browsers, scene: Scene) -> None:
    still = make_user(java_script_enabled=False)
    live = make_user()
    for path in ("/", f"/queues/{scene.queue}", "/jobs", f"/jobs/default/{scene.waiting}"):
        pages = [each.open(path) for each in (still, live)]
        names = [each.get_by_role("heading").all_inner_texts() for each in pages]
        assert names[0] == names[1] != []
        for each in pages:
            each.close()
    page = still.open("/jobs")
    page.get_by_role("textbox", name="Name", exact=True).fill(scene.ended)
    page.get_by_role("button", name="Filter").click()
    expect(row(page, scene.ended)).to_contain_text("Succeeded")
    assert row(page, scene.running).count() == 0
