"""The kubeconfig of a user, as the official loader reads it: its contexts, and a token that may be renewed in the file.

One rule: a process stays with the context and the server with which it began. A token of another cluster is never sent
to this one.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kube.official import authorization, parts


def entry(path: str, name: str) -> dict[str, Any]:
    """Return the context of a name; the current context if the name is empty or unknown."""
    contexts, active = parts.config.list_kube_config_contexts(path)
    found: dict[str, Any] = next((candidate for candidate in contexts if candidate["name"] == name), active)
    return found


def load(path: str, context: str, configuration: Any) -> None:
    """Let a configuration be that of a context, now and whenever the files have another token."""
    files = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
    if not any(file.exists() for file in files):
        raise FileNotFoundError("there is no such file")
    read = partial(_read, path, context or entry(path, "")["name"])
    read(configuration)
    configuration.refresh_api_key_hook = _RenewedToken(files, read, configuration)


def forget(configuration: Any) -> None:
    """Let the files be read again at the next renewal, which runs the program that a user has for tokens: a token
    without a time at which it ends may be refused at any time."""
    if isinstance(configuration.refresh_api_key_hook, _RenewedToken):
        configuration.refresh_api_key_hook.is_refused = True


def _read(path: str, context: str, configuration: Any) -> Any:
    parts.config.load_kube_config(path, context=context, client_configuration=configuration)
    if (token_file := _token_file(path, context)) is not None:
        configuration.refresh_api_key_hook = partial(authorization.read_token, token_file)
    return configuration


def _token_file(path: str, context: str) -> Path | None:
    """Return the file with the user's token, which may be renewed; the official loader reads it once."""
    config = parts.config.kube_config.KubeConfigMerger(path).config
    name = config["contexts"].get_with_name(context)["context"].safe_get("user")
    user = config["users"].get_with_name(name, safe=True)
    fields = (user.safe_get("user") if user is not None else None) or {}
    has_file = "tokenFile" in fields and "auth-provider" not in fields
    return Path(user.path).parent / str(fields["tokenFile"]) if has_file else None


class _RenewedToken:
    """Renews the token of a configuration as the official loader does, and reads the files of the kubeconfig again once
    they differ, as after a new login."""

    def __init__(self, files: Sequence[Path], read: Callable[[Any], Any], configuration: Any) -> None:
        """`read` lets a configuration be what the files say, and returns it."""
        self._files, self._read = files, read
        self._renew = configuration.refresh_api_key_hook
        self._versions = _versions(files)
        self.is_refused = False
        """Whether the API server does not accept the present token."""

    def __call__(self, configuration: Any) -> None:
        """Give a configuration the newest token. The previous one stays in use while a file is being written."""
        versions = _versions(self._files)
        is_changed, is_refused, self.is_refused = versions != self._versions, self.is_refused, False
        if is_changed or is_refused:
            with contextlib.suppress(Exception):
                fresh = self._read(parts.Configuration())
                # A program that has failed leaves no token.
                if fresh.host == configuration.host and (is_changed or fresh.api_key):
                    configuration.api_key, self._renew = fresh.api_key, fresh.refresh_api_key_hook
                self._versions = versions
        if self._renew is not None:
            self._renew(configuration)
            configuration.refresh_api_key_hook = self  # the loader has put its own there


def _versions(files: Sequence[Path]) -> list[tuple[int, int, int]]:
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            state = file.stat()
            found.append((state.st_mtime_ns, state.st_ino, state.st_size))
    return found
