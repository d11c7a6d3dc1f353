"""The settings of Python's garbage collector, which searches for unneeded objects that refer to each other.

One rule: objects that live long are not searched repeatedly. Python's default thresholds fit small programs. A
coordinator keeps hundreds of thousands of objects and makes thousands more for each batch of picks, and nearly none of
them form cycles. The searches took a fifth to a third of its time (`python -m bench picks`). A search of all objects of
the embedded API server lasted 50 ms, in which it answered nobody.
"""

import gc

_THRESHOLDS = (100_000, 20, 20)
"""The thresholds: the number of new objects before a search of the youngest generation, and the numbers of its searches
before older generations are searched."""


def reduce_collections() -> None:
    """Set higher thresholds for the further life of the process."""
    gc.set_threshold(*_THRESHOLDS)


def freeze_objects() -> None:
    """Collect garbage once, and exclude all existing objects from later searches.

    An excluded object to which no reference is left is still freed at once.
    """
    gc.collect()
    gc.freeze()
