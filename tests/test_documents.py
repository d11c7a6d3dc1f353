"""Rules of the pages that people read: length, openings, the index, and the targets of links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README, INDEX = ROOT / "README.md", ROOT / "docs" / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
MEASURED = sorted((ROOT / "bench").glob("*.md"))
LINKED = [README, ROOT / "CONTRIBUTING.md", *PAGES, *MEASURED, *sorted((ROOT / "deploy").rglob("*.md"))]
LONGEST = {README: 170}
LONGEST_PAGE = 400
OPENING = "This page answers: "
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def text_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """Return the targets of the links of a page, without links into the web."""
    return [a or b for a, b in LINK.findall(text_of(page)) if not (a or b).startswith("http")]


@pytest.mark.parametrize("page", [README, *PAGES, *MEASURED], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_is_too_long(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST.get(page, LONGEST_PAGE)


@pytest.mark.parametrize("page", [*PAGES, *MEASURED], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_opens_with_what_it_answers(page: Path) -> None:
    paragraphs = re.sub(r"<!--.*?-->\n*", "", page.read_text(encoding="utf-8")).split("\n\n")
    assert paragraphs[1].startswith(OPENING)


def test_the_index_names_every_page() -> None:
    named = {link for link in links(INDEX) if "/" not in link}
    assert named == {page.name for page in PAGES} - {INDEX.name}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_heading_or_a_file(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []
