"""The order in which jobs were submitted within one second, as the annotation `labels.SUBMITTED` gives it.

One rule: pure, and it never raises. An annotation that is not of this form counts as absent.

An API server stores the creation time in whole seconds only. The annotation is `MICROSECONDS.PLACE`: the time of
submission in microseconds since 1970, and the job's place in the submitted list. `1764000000123456.0` is the first job
of its list.
"""

import re

LONGEST = 30
"""Maximum number of characters of the annotation."""
_FORM = re.compile(r"[0-9]+\.[0-9]+")


def text(microseconds: int, place: int) -> str:
    """Return the annotation of the job at a place, from 0, of a list that is submitted at this time."""
    return f"{microseconds}.{place}"


def read(annotation: object) -> str:
    """Return the annotation if it is well formed, else an empty string.

    A sequence is well formed with ASCII digits, one dot, ASCII digits, and at most LONGEST characters.
    """
    good = isinstance(annotation, str) and len(annotation) <= LONGEST and _FORM.fullmatch(annotation)
    return str(annotation) if good else ""
