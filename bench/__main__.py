"""`python -m bench`: see bench/README.md.

One rule: this module only starts the command line. SIGTERM ends a benchmark as Ctrl-C does, with all processes that it
has started.
"""

import signal

from bench.cli import main

signal.signal(signal.SIGTERM, signal.default_int_handler)
main(prog_name="python -m bench")
