"""Integers in queries and resourceVersions, parsed as Go's strconv parses them.

One rule: a number has ASCII digits only and fits into 64 bits. Python's `int` also accepts digits of other scripts,
underscores and blanks, and raises an error for more than 4,300 digits.
"""

import re

from crds.excerpts import excerpt
from embedded.apiserver.status_errors import bad_request, format_value

_LONGEST_EXCERPT = 40
"""The most characters of a wrong value that a message repeats."""
_UNSIGNED = re.compile(r"0*([0-9]{1,20})", re.ASCII)
_SIGNED = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)
_DIGITS = {"ParseUint": re.compile(r"[0-9]+", re.ASCII), "ParseInt": re.compile(r"[+-]?[0-9]+", re.ASCII)}


def parse_uint(text: str) -> int | None:
    """Return a number from 0 to 2**64 - 1; None if the text is no such number."""
    match = _UNSIGNED.fullmatch(text)
    number = int(match[1]) if match else 2**64
    return number if number < 2**64 else None


def parse_int(text: str) -> int | None:
    """Return a signed number of 64 bits; None if the text is no such number."""
    match = _SIGNED.fullmatch(text)
    number = int(match[1] + match[2]) if match else 2**63
    return number if -(2**63) <= number < 2**63 else None


def resource_version(text: str) -> int:
    """Return a resourceVersion as a number. Raise StatusError (BadRequest) if the text is not a number of 64 bits."""
    number = parse_uint(text)
    if number is None:
        value = format_value(excerpt(text, _LONGEST_EXCERPT))
        raise bad_request(f"resourceVersion: Invalid value: {value}: {_problem('ParseUint', text)}")
    return number


def query_integer(name: str, text: str) -> int:
    """Return a parameter of the query as a number.

    Raise StatusError (BadRequest), with the name of the parameter, if it is not a number of 64 bits.
    """
    number = parse_int(text)
    if number is None:
        raise bad_request(f"{name}: {_problem('ParseInt', text)}")
    return number


def _problem(function: str, text: str) -> str:
    why = "value out of range" if _DIGITS[function].fullmatch(text) else "invalid syntax"
    return f"strconv.{function}: parsing {format_value(excerpt(text, _LONGEST_EXCERPT))}: {why}"
