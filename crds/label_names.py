"""Names of labels and keys of taints, as an admin lists them, and the pattern of other names.

One rule: pure. A name is what an API server accepts: an optional DNS subdomain and a slash, then up to 63 characters.
"""

import re

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_PREFIX = 253
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""RFC 1123: the name of a namespace or a queue."""
MOST_LEVELS = 8
"""The number of labels that order the places of pods."""


def is_name(text: str) -> bool:
    """Return whether a text is the name of a label."""
    prefix, slash, name = text.rpartition("/")
    is_prefixed = not slash or (len(prefix) <= LONGEST_PREFIX and _PREFIX.fullmatch(prefix) is not None)
    return is_prefixed and _NAME.fullmatch(name) is not None


def parse_list(text: str) -> tuple[str, ...]:
    """Return the names in a list that is separated by commas, each once. Raises ValueError, which names a part that is
    no name."""
    names = [part.strip() for part in text.split(",")] if text.strip() else []
    for name in names:
        if not is_name(name):
            raise ValueError(f"{name!r} is no name of a label")
    return tuple(dict.fromkeys(names))
