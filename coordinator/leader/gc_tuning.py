"""How often a process searches for objects that refer to each other and are not needed any more.

One rule: objects that live long are not searched again and again. Python's default thresholds fit small programs. A
coordinator keeps hundreds of thousands of objects and makes thousands more for each batch of picks, and nearly none of
them form cycles. The searches took a fifth to a third of its time (`python -m bench picks`).
"""

import gc

_THRESHOLDS = (100_000, 20, 20)
"""New objects until the youngest generation is searched, and searches of it until an older generation is."""


def reduce_collections() -> None:
    """Set these thresholds for the rest of the process."""
    gc.set_threshold(*_THRESHOLDS)


def freeze_objects() -> None:
    """Collect garbage once, and exclude all objects of now from later searches.

    An excluded object to which no reference is left is still freed at once.
    """
    gc.collect()
    gc.freeze()
