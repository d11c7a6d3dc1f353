"""The line about the code of a run.

One rule: pure; what was left out is named, secrets first, and the line stays short.
"""

from coordinator.code.largest import size_text
from coordinator.runs.run import CodeSummary

MOST_SHOWN = 6
"""The most entries that the line names."""


def format_summary(code: CodeSummary) -> str:
    """Return the line: how many files, how large, the digest, and what was left out."""
    files = f"{code.files} file" if code.files == 1 else f"{code.files} files"
    return f"code: {files}, {size_text(code.packed_bytes)} packed, {code.digest[:8]}{_left_out(code.left_out)}"


def _left_out(entries: list[str]) -> str:
    if not entries:
        return ""
    shown = entries[:MOST_SHOWN]
    rest = len(entries) - len(shown)
    return f" (left out: {'; '.join([*shown, *([f'{rest} more'] if rest else [])])})"
