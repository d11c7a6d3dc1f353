"""The order in which jobs were submitted within one second, as the annotation `labels.SUBMITTED` gives it.

One rule: pure, and it never raises. An annotation in any other form than the one written here counts as absent.

An API server keeps the time of creation in whole seconds only. The annotation is `MICROSECONDS.PLACE`: the moment of
submission in microseconds since 1970, and the job's place in the list that was submitted. `1764000000123456.0` is the
first job of its list.
"""

import re

LONGEST = 30
"""Characters that the annotation may have."""
_FORM = re.compile(r"[0-9]+\.[0-9]+")


def text(microseconds: int, place: int) -> str:
    """The annotation of the job at a place, from 0 on, of a list that is submitted at a moment."""
    return f"{microseconds}.{place}"


def read(annotation: object) -> str:
    """The annotation if it is well formed: ASCII digits, one dot, ASCII digits, and LONGEST characters at most. Else
    empty: the job has none."""
    good = isinstance(annotation, str) and len(annotation) <= LONGEST and _FORM.fullmatch(annotation)
    return str(annotation) if good else ""
