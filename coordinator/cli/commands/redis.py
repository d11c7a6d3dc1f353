"""`torchq redis`: the configuration that torchq needs from an admin of Redis.

One rule: the command does not connect to Redis; it prints a file that the admin applies.
"""

from pathlib import Path

import click

from coordinator.errors import SettingsError
from queues.redis import acl as redis_acl

FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def redis() -> None:
    """Set up a Redis for torchq."""


@redis.command()
@click.option("--password-file", type=FILE, help="file with the password of coordinator and workers")
@click.option("--reader-password-file", type=FILE, help="file with the password of the read-only account")
def acl(password_file: Path | None, reader_password_file: Path | None) -> None:
    """Print an ACL file for Redis. It is for the setting `aclfile`.

    The file has an account for coordinator and workers and a read-only account; all other access is denied. Passwords
    are in the file as hashes. An account without a password file cannot log in yet.
    """
    click.echo(redis_acl.acl(_password(password_file), _password(reader_password_file)), nl=False)


def _password(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    if not password:
        raise SettingsError(f"{file}: the file contains no password")
    return password
