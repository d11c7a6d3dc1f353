"""The table of values in the chart's README, from the comments of values.yaml.

One rule: a value without a comment that begins with `# --` is an error, so that no value is without a description.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml

LINE = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]\w*):(?P<rest>.*)$")
LONGEST_DEFAULT = 60


@dataclass(frozen=True, slots=True)
class DescribedValue:
    """A value by its path, with its default and its meaning."""

    path: str
    default: Any
    meaning: str


def described(text: str) -> list[DescribedValue]:
    """Return the described values in their order. Raises ValueError for a value without a meaning."""
    document, found, path, comment = yaml.safe_load(text), [], list[str](), ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("# -- "):
            comment = bare.removeprefix("# -- ")
        elif bare.startswith("# ") and comment:
            comment += " " + bare.removeprefix("# ")
        elif match := LINE.match(line):
            depth = len(match["indent"]) // 2
            path = [*path[:depth], match["key"]]
            if comment:
                found.append(DescribedValue(".".join(path), _at(document, path), comment))
            elif not isinstance(_at(document, path), dict) or match["rest"].strip():
                raise ValueError(f"values.yaml: {'.'.join(path)} has no comment that begins with `# --`")
            comment = ""
    return found


def table(text: str) -> str:
    """Return the table in Markdown."""
    rows = []
    for each in described(text):
        default, meaning = json.dumps(each.default), each.meaning.replace("|", "\\|")
        shown = f"`{default}`" if len(default) <= LONGEST_DEFAULT else "see values.yaml"
        rows.append(f"| `{each.path}` | {shown} | {meaning} |")
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows, ""])


def _at(document: Any, path: list[str]) -> Any:
    for key in path:
        document = document[key]
    return document
