"""Pages as HTML.

One rule: this is the only module that uses Jinja2. Everything is escaped, and an undefined name is an error.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from coordinator import terminal
from coordinator.dashboard.elements import Drawn, DrawnPage, Element, Page

KEPT_ELEMENTS = 8192
"""The most elements whose text is kept for other readers of the same page."""


def _shown(value: Any) -> Any:
    """Return a value as a page may show it. Control characters, and marks that change the direction of a text, are
    shown as escapes: with them a name could look like another one."""
    return terminal.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_ENVIRONMENT = Environment(
    loader=PackageLoader("coordinator.dashboard"),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TIME = re.compile(r"\b\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ\b")
"""A time as torchq writes it into sentences."""


def _with_times(text: object) -> Markup:
    """Return a sentence in which times are elements, which the script shows as the reader knows them."""
    return Markup(_TIME.sub(r'<time datetime="\g<0>">\g<0></time>', str(escape(terminal.clean(str(text))))))


_ENVIRONMENT.filters["with_times"] = _with_times
_MARK = Markup("\0")
"""Stands for the attributes by which the script of the page knows an element, until its text is known."""


def draw(page: Page) -> DrawnPage:
    """Return the elements of a page as text."""
    return {section: tuple(map(_draw, elements)) for section, elements in page.sections.items()}


def document(page: Page, drawn: DrawnPage, frame: Mapping[str, Any]) -> str:
    """Return a whole page. `frame` has what is around all pages: see `templates/frame.html`."""

    def section(name: str) -> Markup:
        return Markup("".join(each.html for each in drawn[name]))

    return _template(f"pages/{page.template}.html").render(title=page.title, section=section, **page.fixed, **frame)


def _draw(element: Element) -> Drawn:
    try:
        return _drawn_once(element)
    except TypeError:  # the values cannot be hashed
        return _drawn(element)


@lru_cache(KEPT_ELEMENTS)
def _drawn_once(element: Element) -> Drawn:
    return _drawn(element)


def _drawn(element: Element) -> Drawn:
    text = _template(f"elements/{element.template}.html").render(it=element.values, mark=_MARK)
    version = hashlib.blake2s(text.encode(), digest_size=6).hexdigest()
    mark = f'id="{escape(element.id)}" data-version="{version}"'
    return Drawn(element.id, version, text.replace(_MARK, mark, 1).strip())


@lru_cache(None)
def _template(name: str) -> Template:
    return _ENVIRONMENT.get_template(name)
