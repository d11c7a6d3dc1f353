"""Integers in text that a user of the cluster may have written: labels, annotations, versions, last words of a process.

One rule: pure, and it never raises. Text that is no number, or a number that not every part of torchq can keep, is read
as the value that the caller names for that.
"""

LARGEST = 2**53 - 1
"""The largest integer that JSON, Lua and Redis scores keep exactly."""
_DIGITS = len(str(LARGEST))


def bounded(text: object, otherwise: int) -> int:
    """The integer that plain ASCII digits stand for, from 0 to LARGEST; `otherwise` for everything else.

    A sign, a space, a digit of another script and a number of more than 16 digits are not read: Python itself refuses
    to convert text of more than 4,300 digits.
    """
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        return otherwise
    number = int(text)
    return number if number <= LARGEST else otherwise
