"""Pages as HTML: what users write is text, and what did not change has the same version."""

from html.parser import HTMLParser

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import terminal
from coordinator.dashboard import drawing
from coordinator.dashboard.elements import Drawn, Element, Page


class Read(HTMLParser):
    """The tags and the text of a document."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not {name for name, _ in attrs} - {"id", "data-version", "class", "role", "href"}

    def handle_data(self, data: str) -> None:
        self.text += data


def drawn(*elements: Element) -> tuple[Drawn, ...]:
    return drawing.draw(Page("queues", "Queues", {"problems": elements}))["problems"]


@given(st.text(st.characters(exclude_categories=["C"])), st.text(max_size=60))
def test_texts_of_users_are_text(name: str, text: str) -> None:
    (found,) = drawn(Element(name, "text", text))
    read = Read(found.html)
    assert len(read.tags) == 1
    assert read.text.strip() == terminal.clean(text).strip()
    assert not set(found.html) & {"\0", "\x1b", "\u202e", "\u2066"}


def test_a_time_in_a_sentence_is_an_element_and_the_sentence_stays_text() -> None:
    (found,) = drawn(Element("a", "line", "not before 2026-01-01T10:00:00Z <b>, 9999-99-99T99:99:99Z"))
    assert (
        '>not before <time datetime="2026-01-01T10:00:00Z">2026-01-01T10:00:00Z</time> &lt;b&gt;, 9999-' in found.html
    )
    assert found.html.count("<time") == 1


def test_the_version_follows_the_text_and_not_the_identity() -> None:
    one, same, other = drawn(Element("a", "text", "x"), Element("b", "text", "x"), Element("a", "text", "y"))
    assert one.version == same.version != other.version
    assert 'id="a"' in one.html
    assert f'data-version="{one.version}"' in one.html


def test_values_that_cannot_be_hashed_are_drawn_too() -> None:
    assert drawn(Element("a", "text", ["x"]))[0].version


def test_a_name_that_a_template_does_not_know_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        drawn(Element("a", "problem", ()))
