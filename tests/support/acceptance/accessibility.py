"""What axe-core finds on a page, as it looks to all readers: light and dark, on a wide screen and on a phone."""

from collections.abc import Iterator
from itertools import product

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SCHEMES, WIDTHS = ("light", "dark"), (1280, 360)


def findings(page: Page) -> list[str]:
    """Return what is wrong with a page that is open. The page and the script of axe-core are loaded once."""
    page.evaluate(Axe().axe_script)
    looks = product(WIDTHS, SCHEMES)
    return [f"{page.url} {text}" for width, scheme in looks for text in _findings(page, scheme, width)]


def _findings(page: Page, scheme: str, width: int) -> Iterator[str]:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    results = Axe("").run(page)
    if results.violations_count:
        yield f"{scheme}, {width}: {results.generate_report()}"
    if page.evaluate("document.documentElement.scrollWidth") > width:
        yield f"is wider than {width}"
