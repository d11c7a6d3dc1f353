"""Times in the fields of built-in resources, parsed and formatted as in Go.

One rule: a time of any zone is stored in UTC, with seconds or with microseconds, depending on the field.
"""

import re

from crds import timestamps
from embedded.apiserver.status_errors import StatusError, bad_request

SECONDS, MICROSECONDS = "date-time", "micro-time"
"""The schema formats of metav1.Time and metav1.MicroTime."""
_LAYOUTS = {SECONDS: "2006-01-02T15:04:05Z07:00", MICROSECONDS: "2006-01-02T15:04:05.000000Z07:00"}
_ELEMENTS = (
    *(("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"), ("15", r"\d\d")),
    *((":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d")),
)
_FRACTIONS = {SECONDS: ("", r"([.,]\d+)?"), MICROSECONDS: (".000000", r"[.,]\d{6}")}
_PLAIN = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
"""The form of almost all times in requests, which is also the stored form."""
_ZONE = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_RANGES = (("month", 1, 12), ("day", 1, 31), ("hour", 0, 23), ("minute", 0, 59), ("second", 0, 59))


def normalize(text: str, form: str) -> str:
    """Return a time in its stored form.

    Raise StatusError (BadRequest) with the message of Go for a text that is no time.
    """
    if form == SECONDS and _PLAIN.fullmatch(text):
        try:
            timestamps.parse(text)
        except ValueError:
            return _parse_as_go(text, form)  # raises the error of Go
        return text
    return _parse_as_go(text, form)


def _parse_as_go(text: str, form: str) -> str:
    rest = text
    for element, pattern in (*_ELEMENTS, _FRACTIONS[form], _ZONE):
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            raise bad_request(f'parsing time "{text}" as "{_LAYOUTS[form]}": cannot parse "{rest}" as "{element}"')
        rest = rest[match.end() :]
    if rest:
        raise bad_request(f'parsing time "{text}": extra text: "{rest}"')
    numbers = [int(part) for part in re.findall(r"\d+", text[4:19])]
    for (component, low, high), number in zip(_RANGES, numbers, strict=True):
        if not low <= number <= high:
            raise _out_of_range(text, component)
    try:
        moment = timestamps.parse(re.sub(r"[.,](\d+)", lambda part: f".{part[1][:6]:0<6}", text))
        return timestamps.format_micro_time(moment) if form == MICROSECONDS else timestamps.format_time(moment)
    except (ValueError, OverflowError):
        raise _out_of_range(text, "day") from None


def _out_of_range(text: str, component: str) -> StatusError:
    return bad_request(f'parsing time "{text}": {component} out of range')
