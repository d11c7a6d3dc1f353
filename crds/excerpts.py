"""Excerpts of texts for fields with a maximum length.

One rule: pure, and no text is ever cut inside a word or a name: a part of a name looks like another name.
"""

ELLIPSIS = "..."


def one_line(text: object) -> str:
    """Return the text with every run of white space replaced by one space."""
    return " ".join(str(text).split())


def excerpt(text: str, most: int) -> str:
    """Return the text if it has at most `most` characters, else its first words, as far as they fit, and an ellipsis.

    `excerpt("no such variable TORCHQ_VOLUME_DATA", 32)` is "no such variable ...". If the first word is too long, the
    result is only the ellipsis.
    """
    if len(text) <= most:
        return text
    room = most - len(ELLIPSIS) - 1
    head = _until_a_space(text, room) if room > 0 else ""
    return f"{head} {ELLIPSIS}" if head else ELLIPSIS


def _until_a_space(text: str, room: int) -> str:
    head = text[:room]
    if not text[room].isspace():
        head = head[: -len(head.split()[-1])] if head.split() and not head[-1].isspace() else head
    return head.rstrip()


def ending(text: str, most: int) -> str:
    """Return the text if it has at most `most` characters, else an ellipsis and its last words, as far as they fit."""
    return excerpt(text[::-1], most)[::-1]
