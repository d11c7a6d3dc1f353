"""Changes of jobs and queues from pages, in a real browser and without its script."""

import re

import pytest
from playwright.sync_api import expect

from tests.acceptance.dashboard.conftest import Scene
from tests.support.acceptance.browser import Browsers, User
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import fresh


@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no script"])
def test_a_job_is_held_resumed_and_cancelled_by_buttons_that_ask_again(
    make_user: Browsers, scene: Scene, has_script: bool
) -> None:
    name = fresh("changed")
    scene.stack.submit(job(name, python("pass"), queue=scene.queue, cpu="4"))
    page = make_user(java_script_enabled=has_script).open(f"/jobs/default/{name}")
    for button, question, state in (
        ("Hold", "Hold: job default/", "is held"),
        ("Resume", "Resume: job default/", "waits"),
        ("Cancel", "Cancel: job default/", "was cancelled"),
    ):
        page.get_by_role("link", name=button, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"{question}{name}?")
        page.get_by_role("textbox", name="Reason").fill("a try")
        page.get_by_role("button", name=re.compile(f"^{button} the job$")).click()
        expect(page.get_by_role("heading", level=1, name="Done")).to_be_visible()
        page.get_by_role("link", name=f"To job default/{name}").click()
        if has_script:
            expect(page.get_by_role("heading", level=1)).to_contain_text(state)
    expect(page.get_by_role("link", name="Cancel", exact=True)).to_have_count(0)
    assert "by torchq-local: a try" in scene.stack.torchq("job", "show", name)


def test_a_question_that_is_left_changes_nothing_and_a_refusal_is_told(user: User, scene: Scene) -> None:
    page = user.open(f"/queues/{scene.queue}")
    page.get_by_role("link", name="Pause", exact=True).click()
    page.get_by_role("link", name="Leave it as it is").click()
    expect(page.get_by_role("link", name="Pause", exact=True)).to_be_visible()
    page.get_by_role("link", name="Change weight").click()
    page.get_by_role("spinbutton", name="Weight").fill("99999999")
    user.expect_messages(re.compile("400"))
    page.get_by_role("button", name="Change weight").click()
    expect(page.get_by_role("alert")).to_contain_text("spec.weight")
    page.get_by_role("link", name=f"To queue {scene.queue}").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(scene.queue)
