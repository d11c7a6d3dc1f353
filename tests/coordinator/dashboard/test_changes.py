"""What a browser is told so that it shows a page as it is now."""

from collections.abc import Sequence
from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from coordinator.dashboard import changes
from coordinator.dashboard.changes import Change
from coordinator.dashboard.elements import Drawn, DrawnPage

SECTIONS = ("one", "other")
ELEMENTS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 2)), unique_by=lambda each: each[0], max_size=8
)


@st.composite
def pages(draw: st.DrawFn) -> DrawnPage:
    elements, cut = draw(ELEMENTS), draw(st.integers(0, 8))
    drawn = [Drawn(name, str(version), f"<p>{name}{version}</p>") for name, version in elements]
    return {"one": tuple(drawn[:cut]), "other": tuple(drawn[cut:])}


def applied(shown: DrawnPage, told: Sequence[Change]) -> dict[str, list[tuple[str, str]]]:
    """Return the texts of a browser by section, changed as the script of the page does."""
    texts = {section: [(each.id, each.html) for each in drawn] for section, drawn in shown.items()}
    for change in told:
        found = [(section, each) for section, elements in texts.items() for each in elements if each[0] == change["id"]]
        for section, each in found:
            texts[section].remove(each)
        if "section" not in change:
            continue
        elements = texts[change["section"]]
        names = [name for name, _ in elements]
        at = names.index(change["before"]) if change["before"] else len(names)
        html = change["html"] if "html" in change else found[0][1][1]
        elements.insert(at, (change["id"], html))
    return texts


@given(pages(), pages())
def test_the_changes_of_one_page_to_another_give_the_other(before: DrawnPage, after: DrawnPage) -> None:
    told = changes.compare(changes.versions(before), after)
    assert applied(before, told) == {section: [(each.id, each.html) for each in after[section]] for section in SECTIONS}
    assert changes.compare(changes.versions(after), after) == []


@given(pages(), pages())
def test_an_element_that_a_browser_has_is_not_sent_again(before: DrawnPage, after: DrawnPage) -> None:
    known = {(each.id, each.version) for drawn in before.values() for each in drawn}
    told = changes.compare(changes.versions(before), after)
    versions = {each.id: each.version for drawn in after.values() for each in drawn}
    assert all((change["id"], versions[change["id"]]) not in known for change in told if "html" in change)


@given(st.permutations("abcdef"))
def test_as_few_elements_move_as_can_be(order: list[str]) -> None:
    before, after = ({"one": tuple(Drawn(each, "1", each) for each in names)} for names in ("abcdef", order))
    longest = max(
        size
        for size in range(1, 7)
        for some in combinations(order, size)
        if all(one < other for one, other in pairwise(some))
    )
    assert len(changes.compare(changes.versions(before), after)) == len(order) - longest


def test_an_element_that_goes_to_an_earlier_section_stays_on_the_page() -> None:
    drawn = Drawn("a", "1", "<p>a</p>")
    told = changes.compare({"one": [], "other": [("a", "1")]}, {"one": (drawn,), "other": ()})
    assert told == [{"id": "a", "section": "one", "before": ""}]
