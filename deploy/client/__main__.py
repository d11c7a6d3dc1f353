"""Writes the methods of both clients: `python -m deploy.client`.

One rule: the table of calls is read without the package around it, since that needs the methods which are written here.
"""

import importlib
import sys
import types
from pathlib import Path

PACKAGE = "torchq"


def main() -> None:
    """Read the table, and write the methods."""
    bare = types.ModuleType(PACKAGE)
    bare.__path__ = [str(Path(__file__).parents[2] / PACKAGE)]
    sys.modules[PACKAGE] = bare
    importlib.import_module("deploy.client.calls").write()


if __name__ == "__main__":
    main()
