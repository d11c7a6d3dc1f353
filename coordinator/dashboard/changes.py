"""What a browser has to change so that a page shows what is true now.

One rule: pure. A change names one element: it is removed, put into a section before another element, or moved there.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence

from coordinator.dashboard.elements import Drawn, DrawnPage

Change = Mapping[str, str]
"""A change as the script of the page applies it. `id`: the element. `section` and `before`: its place, before another
element or, if that is empty, at the end of its section. `html`: its new text; without it the element is only moved, and
without a section it is removed."""
Versions = Mapping[str, Sequence[tuple[str, str]]]
"""What a browser shows: for each section the ids of its elements, in their order, with their versions."""


def versions(page: DrawnPage) -> dict[str, list[tuple[str, str]]]:
    """Return what a browser shows that has this page."""
    return {section: [(each.id, each.version) for each in drawn] for section, drawn in page.items()}


def compare(shown: Versions, page: DrawnPage) -> list[Change]:
    """Return the changes from what a browser shows to a page, in the order in which they are applied."""
    known = {name: version for elements in shown.values() for name, version in elements}
    wanted = {each.id for drawn in page.values() for each in drawn}
    changes: list[Change] = [{"id": name} for name in known if name not in wanted]
    for section, drawn in page.items():
        changes += _of_section(section, [name for name, _ in shown.get(section, ())], drawn, known)
    return changes


def _of_section(
    section: str, shown: Sequence[str], drawn: Sequence[Drawn], known: Mapping[str, str]
) -> Iterator[Change]:
    """Yield the changes of a section. `known` has the versions of all sections: an element may come from another."""
    names = [each.id for each in drawn]
    staying = _in_order(shown, names)
    following = ""
    for each in reversed(drawn):
        place = {"id": each.id, "section": section, "before": following}
        if known.get(each.id) != each.version:
            yield place | {"html": each.html}
        elif each.id not in staying:
            yield place
        following = each.id


def _in_order(shown: Sequence[str], wanted: Sequence[str]) -> Collection[str]:
    """Return the most elements that need not move, as they are in their new order already: the longest increasing
    subsequence of their old places."""
    if shown == wanted:  # as mostly
        return set(shown)
    old = {name: place for place, name in enumerate(shown)}
    names = [name for name in wanted if name in old]
    ends: list[int] = []  # the lowest old place at which an increasing sequence of each length ends
    last: list[str] = []
    before: dict[str, str] = {}
    for name in names:
        at = bisect_left(ends, old[name])
        ends[at : at + 1] = [old[name]]
        last[at : at + 1] = [name]
        before[name] = last[at - 1] if at else ""
    staying, name = set[str](), last[-1] if last else ""
    while name:
        staying.add(name)
        name = before[name]
    return staying
