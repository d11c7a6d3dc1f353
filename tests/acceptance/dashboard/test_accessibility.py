"""What readers of all kinds need of the pages: axe-core finds nothing, and narrow screens show everything."""

from playwright.sync_api import expect

from tests.acceptance.dashboard.conftest import Scene
from tests.support.acceptance import accessibility
from tests.support.acceptance.browser import NOT_SHOWN, Browsers


def test_axe_finds_nothing_in_light_and_dark_wide_and_narrow(make_user: Browsers, scene: Scene) -> None:
    user = make_user(reduced_motion="reduce")
    user.expect_messages(NOT_SHOWN)
    found = list[str]()
    question = f"/act?kind=job&verb=cancel&namespace=default&name={scene.waiting}"
    for path in (*scene.paths, question, "/no/such/page"):
        page = user.open(path)
        expect(page.get_by_role("main")).to_be_visible()
        found += accessibility.findings(page)
        page.close()
    assert not found, "\n".join(found)
