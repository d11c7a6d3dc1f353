"""What a browser has to change so that a page shows what is true now.

One rule: pure. A change names one element: it is removed, put into a section before another element, or moved there.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

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
    return [change for section, drawn in page.items() for change in _of_section(section, shown.get(section, ()), drawn)]


def _of_section(section: str, shown: Sequence[tuple[str, str]], drawn: Sequence[Drawn]) -> Iterator[Change]:
    known = dict(shown)
    wanted = {each.id for each in drawn}
    yield from ({"id": name} for name, _ in shown if name not in wanted)
    staying = _in_order([name for name, _ in shown if name in wanted], drawn)
    following = ""
    for each in reversed(drawn):
        place = {"id": each.id, "section": section, "before": following}
        if known.get(each.id) != each.version:
            yield place | {"html": each.html}
        elif each.id not in staying:
            yield place
        following = each.id


def _in_order(shown: Sequence[str], drawn: Sequence[Drawn]) -> set[str]:
    """Return the most elements that need not move, as they are in their new order already: the longest increasing
    subsequence of their old places."""
    old = {name: place for place, name in enumerate(shown)}
    names = [each.id for each in drawn if each.id in old]
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
