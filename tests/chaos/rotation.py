"""The rotation of torchq's password in Redis during a run: in the servers, and in the URL files of the processes.

One rule: while both passwords are valid, each file is replaced in one step, as the kubelet replaces a secret. Otherwise
the file is empty, then half-written, then whole, as while an editor saves the file.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import stores

_PAUSE_SECONDS = 0.3


@dataclass
class Rotation:
    """The passwords of a run. Only one thread may use this object."""

    store: stores.Store
    files: Mapping[str, Path]
    """The URL file of each process."""
    password: str = stores.PASSWORD
    count: int = 0

    def soft(self, seconds: float) -> None:
        """Rotate the password. The old and the new password are valid for some seconds, so no process has a reason for
        an error line.
        """
        old, new = self._next()
        stores.accept(self.store.servers, new, old)
        for client, file in self.files.items():
            part = file.with_suffix(".new")
            part.write_text(self.store.url(client, new))
            part.replace(file)
        time.sleep(seconds)
        stores.accept(self.store.servers, new)

    def hard(self, seconds: float) -> None:
        """Replace the password and close all connections. The files get the new password some seconds later."""
        _, new = self._next()
        stores.accept(self.store.servers, new)
        for each in self.store.servers:
            stores.insist(lambda each=each: each.ask("CLIENT", "KILL", "USER", "torchq"), 1.0)  # type: ignore[misc]
        time.sleep(seconds)
        self._write(new)

    def _next(self) -> tuple[str, str]:
        old = self.password
        self.count += 1
        self.password = f"p:ss@wd/{self.count}"
        return old, self.password

    def _write(self, password: str) -> None:
        urls = {client: self.store.url(client, password) for client in self.files}
        for part in (0.0, 0.4, 1.0):
            for client, file in self.files.items():
                file.write_text(urls[client][: int(part * len(urls[client]))])
            time.sleep(_PAUSE_SECONDS)
