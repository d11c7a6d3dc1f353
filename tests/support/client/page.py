"""Runs the code blocks of a page, in order, as a reader would: `python page.py PAGE`, in the folder of a project.

One rule: the program uses only the standard library, since it runs in an environment without torchq's packages. A block
that begins with `# NAME.py` or `# NAME.toml` becomes that file. Blocks of Python share a namespace. Blocks of `sh` run
in a shell.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")


class Block(NamedTuple):
    """A block of code, and the line of the page at which it begins."""

    language: str
    code: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page. A fence without a language is no block."""
    for found in FENCE.finditer(text):
        yield Block(found[1], found[2], text[: found.start()].count("\n") + 2)


def main(page: str) -> None:
    """Run all blocks. The first block that fails ends the program with a traceback."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    sys.path.insert(0, ".")
    for block in blocks(Path(page).read_text()):
        named = FILE.match(block.code)
        print(f"--- {page}:{block.line} {block.language} {named[1] if named else ''}", flush=True)
        if named:
            Path(named[1]).write_text(block.code)
        elif block.language == "python":
            # The empty lines before the code keep the line numbers of the page in a traceback.
            exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
        elif block.language == "sh":
            subprocess.run(["sh", "-ec", block.code], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
