"""Results that are too large for a status, which has a reference to their place.

One rule: pure. A reference has the digest of its result, and a copy with another digest is another result. The package
`torchq` writes the reference and the result (`torchq/_training/large_results.py`).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MARK = "torchq-result-part: "


@dataclass(frozen=True, slots=True)
class KeptResult:
    """The value that a status has in place of a large result."""

    bytes: int
    digest: str
    file: str
    """The name of its file in the outputs of the job; empty if it is in none."""
    is_logged: bool
    """Whether it is in the log of its pod."""

    def describe(self) -> str:
        """Return a description of the result."""
        elsewhere = "in the log" if self.is_logged else "nowhere"
        where = f"in the file {self.file} of the job's outputs" if self.file else elsewhere
        return f"of {self.bytes:,} bytes, kept {where}"

    def is_copy(self, text: str) -> bool:
        """Return whether a text is the result."""
        return hashlib.sha256(text.encode()).hexdigest()[: len(self.digest)] == self.digest

    def join(self, lines: Iterable[str]) -> str:
        """Return the result in some lines of a log; empty if the lines do not have the whole result."""
        parts: dict[int, str] = {}
        for line in lines:
            _, mark, rest = line.partition(MARK)
            digest, _, rest = rest.partition(" ")
            start, _, text = rest.partition(" ")
            if mark and digest == self.digest and start.isdecimal():
                parts[int(start)] = text
        found = "".join(text for _, text in sorted(parts.items()))
        return found if self.is_copy(found) else ""


def find(result: Any) -> KeptResult | None:
    """Return the place that a result refers to; None if the value is the result itself."""
    match result:
        case {"torchq-result-kept": {"bytes": int(size), "digest": str(digest), "file": str(file), **more}} if (
            len(result) == 1 and len(digest) == 16 and "/" not in file and not file.startswith(".")
        ):
            return KeptResult(size, digest, file, more.get("is_logged") is True)
    return None
