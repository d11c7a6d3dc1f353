"""The names in a PromQL expression: metrics with the labels of their selectors, and labels of groupings.

One rule: this module finds names only. Prometheus says whether an expression is valid.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_COMMENT = re.compile(r"#.*$", re.MULTILINE)
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(rf"({NAME})\s*\{{([^}}]*)\}}")
_LABEL = re.compile(rf"({NAME})\s*(?:=~|!~|!=|=)")
_RANGE = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_WORD = re.compile(rf"(?<![\w.]){NAME}(?!\s*\(|\w)")
_OPERATORS = {"and", "or", "unless", "bool", "inf", "nan"}


@dataclass
class Names:
    """The names in an expression."""

    metrics: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The labels in selectors, by metric."""
    groupings: set[str] = field(default_factory=set)
    """The labels by which results are grouped and matched."""


def names(expression: str) -> Names:
    """Return the names in an expression."""
    found = Names()
    text = _COMMENT.sub("", _TEXT.sub('""', expression))
    for labels in _GROUPING.findall(text):
        found.groupings |= {label.strip() for label in labels.split(",") if label.strip()}
    text = _RANGE.sub("", _GROUPING.sub("", text))
    for metric, labels in _SELECTOR.findall(text):
        found.metrics[metric] |= set(_LABEL.findall(labels))
    for word in _WORD.findall(_SELECTOR.sub("", text)):
        if word.lower() not in _OPERATORS:
            found.metrics[word] |= set()
    return found
