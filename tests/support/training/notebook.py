"""A notebook that runs without Jupyter: a program that keeps the history of its cells as IPython does.

One rule: the program needs nothing but Python, so that a test can run it in any environment.
"""

from collections.abc import Sequence

_HEAD = """
import sys, types
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
main.In = [""]
for number, source in enumerate(CELLS, 1):
    main.In.append(source)
    exec(compile(source, f"<ipython-input-{number}>", "exec"), main.__dict__)
"""


def program(cells: Sequence[str]) -> str:
    """Return the source of a program that runs the cells of a notebook one after the other."""
    return f"CELLS = {list(cells)!r}{_HEAD}"
