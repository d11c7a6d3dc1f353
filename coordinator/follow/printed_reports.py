"""The reports that training code prints: marked lines with one JSON object each.

One rule: a line without the mark, or with anything else than an object after it, is output and no report.
"""

from typing import Any

import orjson

from coordinator.follow.log_lines import LogLine

MARK = "torchq-report: "


def parse(line: LogLine) -> dict[str, Any] | None:
    """Return the report in a line with `pod` and `time`; None if the line is no report.

    A line may have a prefix that the launcher of processes puts before it, such as `[rank1]:`.
    """
    _, mark, text = line.text.partition(MARK)
    if not mark or not line.pod:
        return None
    try:
        report = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return {**report, "pod": line.pod, "time": line.time} if isinstance(report, dict) else None
