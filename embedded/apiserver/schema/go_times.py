"""Times in the fields of built-in resources: read and written as Go does.

One rule: what a client writes in any zone is kept in UTC, to the second or to the microsecond, as the field has it.
"""

import re

from crds import timestamps
from embedded.apiserver.status_errors import Refusal, bad_request

SECONDS, MICROSECONDS = "date-time", "micro-time"
"""Formats of fields: metav1.Time and metav1.MicroTime."""
_LAYOUTS = {SECONDS: "2006-01-02T15:04:05Z07:00", MICROSECONDS: "2006-01-02T15:04:05.000000Z07:00"}
_ELEMENTS = (
    *(("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"), ("15", r"\d\d")),
    *((":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d")),
)
_FRACTIONS = {SECONDS: ("", r"([.,]\d+)?"), MICROSECONDS: (".000000", r"[.,]\d{6}")}
_PLAIN = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
"""How nearly all are written, and kept."""
_ZONE = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_RANGES = (("month", 1, 12), ("day", 1, 31), ("hour", 0, 23), ("minute", 0, 59), ("second", 0, 59))


def written(text: str, form: str) -> str:
    """A time as it is kept. BadRequest, in the words of Go, if it is none."""
    if form == SECONDS and _PLAIN.fullmatch(text):
        try:
            timestamps.parse(text)
        except ValueError:
            return _parsed(text, form)  # which tells what is wrong
        return text
    return _parsed(text, form)


def _parsed(text: str, form: str) -> str:
    rest = text
    for element, pattern in (*_ELEMENTS, _FRACTIONS[form], _ZONE):
        found = re.match(pattern, rest, re.ASCII)
        if found is None:
            raise bad_request(f'parsing time "{text}" as "{_LAYOUTS[form]}": cannot parse "{rest}" as "{element}"')
        rest = rest[found.end() :]
    if rest:
        raise bad_request(f'parsing time "{text}": extra text: "{rest}"')
    numbers = [int(part) for part in re.findall(r"\d+", text[4:19])]
    for (word, low, high), number in zip(_RANGES, numbers, strict=True):
        if not low <= number <= high:
            raise _out_of_range(text, word)
    try:
        moment = timestamps.parse(re.sub(r"[.,](\d+)", lambda part: f".{part[1][:6]:0<6}", text))
        return timestamps.format_micro_time(moment) if form == MICROSECONDS else timestamps.format_time(moment)
    except (ValueError, OverflowError):
        raise _out_of_range(text, "day") from None


def _out_of_range(text: str, word: str) -> Refusal:
    return bad_request(f'parsing time "{text}": {word} out of range')
