"""`python -m bench`: see bench/README.md.

One rule: nothing here but the start.
"""

from bench.cli import main

main(prog_name="python -m bench")
