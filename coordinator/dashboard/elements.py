"""What a page consists of: elements in sections.

One rule: a page is a value. An element is made again when its values differ, and only then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Element:
    """A part of a page that is replaced as a whole, such as a row of a table."""

    id: str
    """The identity within the page. Two elements of one page never have the same."""
    template: str
    """The template, by its name below `templates/elements`."""
    values: Any
    """What the template shows, as `it`: a frozen value that can be hashed, or JSON values."""
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # Rows stay the same objects over many pages, and their values are long.
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.id, self.template, self.values)))
        return self._hash or 0


@dataclass(frozen=True, slots=True)
class Download:
    """A file that an address has instead of a page."""

    name: str
    kind: str
    """The media type."""
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its elements by section, in their order."""

    template: str
    """The template, by its name below `templates/pages`. The template says where each section is."""
    title: str
    sections: Mapping[str, tuple[Element, ...]]
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What the template shows beside its sections. These values do not change while the page is open."""
    download: Download | None = None
    """What the browser gets instead, as a file."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """An element as text."""

    id: str
    version: str
    """Differs if the text differs."""
    html: str


DrawnPage = Mapping[str, tuple[Drawn, ...]]
"""The drawn elements of a page, by section."""
