"""Integers in untrusted text: labels, annotations, versions, the termination message of a process.

One rule: pure, and it never raises. A text that is no number, or a number too large for some part of torchq, is read as
the caller's default.
"""

LARGEST = 2**53 - 1
"""The largest integer that JSON, Lua and Redis scores keep exactly."""
_DIGITS = len(str(LARGEST))


def parse(text: object, otherwise: int) -> int:
    """Return the integer from 0 to LARGEST that ASCII digits stand for, or `otherwise` for any other text.

    A sign, a space, a digit of another script and a number of more than 16 digits are not read: Python itself refuses
    to convert text of more than 4,300 digits.
    """
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        return otherwise
    number = int(text)
    return number if number <= LARGEST else otherwise
