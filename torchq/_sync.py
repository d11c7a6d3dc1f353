"""How calls of threads are made: the base of the client and of its jobs.

One rule: all threads share one process. If the process has ended, the next call starts another process; an interrupted
call is sent again only if the table of calls says that a repetition does no harm.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from torchq import _answers, _parameters, _program
from torchq._calls import CALLS
from torchq._errors import Disconnected
from torchq._job import JobHandle
from torchq._process import Process
from torchq._program import Options
from torchq._training.importing import SUBMITTING, refuse_while_importing


class SyncCalls:
    """A client: the calls of all its threads go to one `torchq rpc`."""

    def __init__(
        self,
        *,
        kubeconfig: str | os.PathLike[str] = "",
        context: str = "",
        namespace: str = "",
        coordinator: str = "",
    ) -> None:
        """Create a client. Nothing is started before the first call. The options are the same as those of the command
        `torchq`.
        """
        self._options = Options(os.fspath(kubeconfig), context, namespace, coordinator)
        self._starting = threading.Lock()
        self._process: Process | None = None
        self._owner = os.getpid()

    def close(self) -> None:
        """End the process. The next call starts another process. Jobs are not touched."""
        with self._lock():
            if self._process is not None:
                self._process.close()
                self._process = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_job(self, handle: str) -> Any:
        raise NotImplementedError

    def _call(self, method: str, given: Mapping[str, object]) -> Any:
        if method in SUBMITTING:
            refuse_while_importing()
        call = CALLS[method]
        params = _parameters.as_params(call, given)
        try:
            value = self._connected().call(method, params)
        except Disconnected:
            if not call.repeatable:
                raise
            value = self._connected().call(method, params)
        return _answers.convert(call, value, self._make_job)

    def _stream(self, method: str, given: Mapping[str, object]) -> Iterator[Any]:
        call = CALLS[method]
        params = _parameters.as_params(call, given)
        for value in self._connected().stream(method, params):
            yield _answers.convert(call, value, self._make_job)

    def _connected(self) -> Process:
        """Return the process, started if it does not run, or if other variables select the cluster now."""
        with self._lock():
            process, environ = self._process, os.environ
            if process is not None and not process.is_alive:
                process = None
            elif process is not None and process.selection != _program.selection(environ):
                process.retire()
                process = None
            self._process = process or Process(_program.find(environ), self._options, environ)
            return self._process

    def _lock(self) -> threading.Lock:
        """Return the lock. In a fork, forget the process of the parent, and the lock, which no thread may release."""
        if self._owner != os.getpid():
            self._owner, self._starting, self._process = os.getpid(), threading.Lock(), None
        return self._starting


class SyncJob(JobHandle):
    """A job, and the client for its calls."""

    def __init__(self, handle: str, client: SyncCalls) -> None:
        super().__init__(handle)
        self._client = client

    def _call(self, method: str, given: Mapping[str, object]) -> Any:
        return self._client._call(method, {"job": self.handle, **given})

    def _stream(self, method: str, given: Mapping[str, object]) -> Iterator[Any]:
        return self._client._stream(method, {"job": self.handle, **given})
