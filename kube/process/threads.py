"""Ends the process if one of its threads fails; the supervisor of the process then starts it again.

One rule: every thread of the process is treated so, including the threads of libraries. A process that continues
without one of its threads looks healthy and does only part of its work.

An error about one object never ends a thread: the loops skip that object (`kube.object_errors`).
"""

import logging
import os
import threading

EXIT_CODE = 70
"""The exit code of a defect of the program: EX_SOFTWARE of sysexits.h."""
logger = logging.getLogger(__name__)


def exit_on_thread_failure() -> None:
    """Log an exception that a thread does not catch, and end the process with EXIT_CODE, from now on.

    Each program calls this function once, before it starts threads. Tests do not: pytest reports such exceptions
    itself. Exit handlers do not run: they would wait for the other threads.
    """

    def fail(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "?"
        trace = None if args.exc_value is None else (args.exc_type, args.exc_value, args.exc_traceback)
        try:
            logger.critical("thread %s failed: the process ends, and its supervisor restarts it", name, exc_info=trace)
            for handler in logging.getLogger().handlers:
                handler.flush()
        finally:
            os._exit(EXIT_CODE)

    threading.excepthook = fail
