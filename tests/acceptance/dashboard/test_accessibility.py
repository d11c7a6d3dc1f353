"""What readers of all kinds need of the pages: axe-core finds nothing, and narrow screens show everything."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.acceptance.dashboard.conftest import Scene
from tests.support.acceptance.browser import NOT_SHOWN, Browsers


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_axe_finds_nothing(make_user: Browsers, scene: Scene, scheme: str, width: int) -> None:
    viewport = {"width": width, "height": 900}
    user = make_user(color_scheme=scheme, reduced_motion="reduce", viewport=viewport)
    user.expect_messages(NOT_SHOWN)
    found = list[str]()
    question = f"/act?kind=job&verb=cancel&namespace=default&name={scene.waiting}"
    for path in (*scene.paths, question, "/no/such/page"):
        page = user.open(path)
        expect(page.get_by_role("main")).to_be_visible()
        results = Axe().run(page)
        if results.violations_count:
            found.append(f"{path}: {results.generate_report()}")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{path} is wider than {width}")
        page.close()
    assert not found, "\n".join(found)
