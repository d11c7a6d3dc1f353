"""How often a process looks for garbage that counting references does not find: objects that refer to each other.

One rule: what lives long is not looked through again and again. Python's own thresholds fit small programs. A
coordinator keeps hundreds of thousands of objects and makes thousands more for each batch of picks, nearly none of them
in circles: to look for such took a fifth to a third of its time (`python -m bench picks`).
"""

import gc

_THRESHOLDS = (100_000, 20, 20)
"""Objects more than before until the youngest are looked through, and how often that until older ones are, too."""


def look_seldom() -> None:
    """For the rest of the process."""
    gc.set_threshold(*_THRESHOLDS)


def settle() -> None:
    """What is there now will stay: throw away what is garbage, and look through the rest no more. An object among it
    that nobody refers to any more still goes at once."""
    gc.collect()
    gc.freeze()
