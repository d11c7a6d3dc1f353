"""What becomes of a process of which a thread has failed: it ends, and its supervisor starts it again.

One rule: it holds for every thread of the process, whoever started it. A process that runs on without one of its
threads looks healthy and does only a part of its work.

What concerns one object never gets here: loops skip that object (`kube.object_errors`).
"""

import logging
import os
import threading
from collections.abc import Callable

EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h: a defect of the program."""
logger = logging.getLogger(__name__)


def end_process_with_any(end: Callable[[int], object] = os._exit) -> None:
    """From now on an exception that a thread does not catch is logged, and `end` is called with EXIT_CODE.

    Called once by each program, before it starts threads. Not by tests, where pytest reports such exceptions. `end`
    must not run exit handlers: they would wait for the other threads.
    """

    def failed(found: threading.ExceptHookArgs) -> None:
        name = found.thread.name if found.thread else "?"
        trace = None if found.exc_value is None else (found.exc_type, found.exc_value, found.exc_traceback)
        try:
            logger.critical("thread %s failed: the process ends, to be started again", name, exc_info=trace)
            for handler in logging.getLogger().handlers:
                handler.flush()
        finally:
            end(EXIT_CODE)

    threading.excepthook = failed
