"""`python -m bench`: see bench/README.md.

One rule: nothing here but the start, and that SIGTERM ends a benchmark as Ctrl-C does: with all it has started.
"""

import signal

from bench.cli import main

signal.signal(signal.SIGTERM, signal.default_int_handler)
main(prog_name="python -m bench")
