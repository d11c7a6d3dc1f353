"""`torchq redis`: what an admin of Redis needs to know of torchq.

One rule: it asks Redis nothing and changes nothing; it prints what an admin applies.
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
@click.option("--password-file", type=FILE, help="password of the account of coordinator and workers")
@click.option("--reader-password-file", type=FILE, help="password of the account that only reads")
def acl(password_file: Path | None, reader_password_file: Path | None) -> None:
    """Print an ACL file for Redis (`aclfile`): an account for coordinator and workers, one that only reads, and nothing
    for anybody else. Passwords are in it as hashes; without a file, the account cannot log in yet."""
    click.echo(redis_acl.acl(_password(password_file), _password(reader_password_file)), nl=False)


def _password(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    if not password:
        raise SettingsError(f"{file}: there is no password in it")
    return password
