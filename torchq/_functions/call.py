"""A call of a function that is sent with a job, as JSON in the variable TORCHQ_CALL.

One rule: names, text and JSON values go; nothing is pickled. `parse` reads the text that `as_text` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchq._errors import Invalid
from torchq._training.json_values import as_json, as_text

VARIABLE = "TORCHQ_CALL"
MOST_BYTES = 64 * 1024
"""The most bytes of a call. It stands in the pod template of each task, and Linux takes 128 KiB as one variable."""


@dataclass(frozen=True)
class FunctionCall:
    """The arguments of a function, and where its module is found."""

    arguments: Sequence[Any] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    search_path: Sequence[str] = ()
    """The folders in which modules are found, relative to the folder that was sent."""
    file: str = ""
    """The file of the module, relative to the folder that was sent; empty for a module that was made of a notebook."""
    source: str = ""
    """The source of a module that was made of a notebook."""

    def as_text(self) -> str:
        """Return the call as JSON. Raises Invalid for an argument that is not JSON, and for a call too large."""
        document = {
            "arguments": [as_json(each, f"argument {place}") for place, each in enumerate(self.arguments, 1)],
            "keywords": {name: as_json(each, f"argument {name}") for name, each in self.keywords.items()},
            "searchPath": list(self.search_path),
            "file": self.file,
            "source": self.source,
        }
        # In the value of a variable, Kubernetes replaces $(NAME) and $$. JSON has another way to write a dollar sign.
        text = as_text(document).replace("$", "\\u0024")
        if len(text) > MOST_BYTES:
            raise Invalid(f"the call has {len(text):,} bytes, and at most {MOST_BYTES:,} go: {self._advice()}")
        return text

    def _advice(self) -> str:
        if len(self.source) > MOST_BYTES // 2:
            return "move what the function needs from the notebook to a module in this folder, and import it"
        return "write the data to a file in the folder, and give the file's name"


def parse(text: str) -> FunctionCall:
    """Return the call in the variable. Raises Invalid."""
    try:
        document = json.loads(text)
        return FunctionCall(
            arguments=[*document["arguments"]],
            keywords={**document["keywords"]},
            search_path=[*document["searchPath"]],
            file=document["file"],
            source=document["source"],
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Invalid(f"{VARIABLE}: is not a call that `submit` of a function has made") from None
