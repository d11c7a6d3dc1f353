"""Whole numbers as clients write them: the text of a query or of a resourceVersion, read as Go's strconv reads it.

One rule: ASCII digits within 64 bits. Python's `int` also takes digits of other scripts, underscores and blanks, and
raises for more than 4,300 digits.
"""

import re

from embedded.apiserver.status_errors import bad_request, shown

_SHOWN = 40
"""Characters of a wrong value that a message repeats."""
_UNSIGNED = re.compile(r"0*([0-9]{1,20})", re.ASCII)
_SIGNED = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)
_DIGITS = {"ParseUint": re.compile(r"[0-9]+", re.ASCII), "ParseInt": re.compile(r"[+-]?[0-9]+", re.ASCII)}


def unsigned(text: str) -> int | None:
    """A number from 0 to 2**64 - 1; None if the text is none."""
    found = _UNSIGNED.fullmatch(text)
    number = int(found[1]) if found else 2**64
    return number if number < 2**64 else None


def signed(text: str) -> int | None:
    """A number of 64 bits with or without a sign; None if the text is none."""
    found = _SIGNED.fullmatch(text)
    number = int(found[1] + found[2]) if found else 2**63
    return number if -(2**63) <= number < 2**63 else None


def version(text: str) -> int:
    """A resourceVersion. BadRequest if it is no number of 64 bits."""
    found = unsigned(text)
    if found is None:
        raise bad_request(f"resourceVersion: Invalid value: {shown(text[:_SHOWN])}: {_wrong('ParseUint', text)}")
    return found


def integer(name: str, text: str) -> int:
    """A parameter of the query. BadRequest, with its name, if it is no number of 64 bits."""
    found = signed(text)
    if found is None:
        raise bad_request(f"{name}: {_wrong('ParseInt', text)}")
    return found


def _wrong(function: str, text: str) -> str:
    why = "value out of range" if _DIGITS[function].fullmatch(text) else "invalid syntax"
    return f"strconv.{function}: parsing {shown(text[:_SHOWN])}: {why}"
