"""`torchq redis`: what an admin of Redis does for torchq.

One rule: no command changes the configuration of Redis; `acl` prints a file that the admin applies.
"""

from pathlib import Path

import click

from coordinator.cache import own_installation
from coordinator.cli.session import Session, pass_session
from coordinator.errors import SettingsError
from coordinator.rbac.permissions import DOCTOR
from queues import installation
from queues.redis import acl as redis_acl
from queues.redis import connection, fitness

FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def redis() -> None:
    """Set up a Redis for torchq."""


@redis.command()
@click.option("--password-file", type=FILE, help="file with the password of coordinator and workers")
@click.option("--worker-password-file", type=FILE, help="file with the password of an account of workers alone")
@click.option("--reader-password-file", type=FILE, help="file with the password of the read-only account")
@click.option(
    "--internal-password-file",
    type=FILE,
    help="file with the password of the accounts by which sentinels and replicas use a server",
)
@click.option("--sentinel", is_flag=True, help="print the account for the sentinels' own ACL file instead")
def acl(
    password_file: Path | None,
    worker_password_file: Path | None,
    reader_password_file: Path | None,
    internal_password_file: Path | None,
    sentinel: bool,
) -> None:
    """Print an ACL file for Redis. It is for the setting `aclfile`.

    The file has an account for coordinator and workers, one that writes only what workers write, and a read-only
    account; all other access is denied. Passwords are in the file as hashes. An account without a password file cannot
    log in yet.
    """
    if sentinel:
        if worker_password_file or reader_password_file or internal_password_file:
            raise click.UsageError("--sentinel takes no other password than --password-file")
        click.echo(redis_acl.sentinel_acl(_password(password_file)), nl=False)
        return
    files = (password_file, reader_password_file, internal_password_file, worker_password_file)
    passwords = (_password(file) for file in files)
    click.echo(redis_acl.acl(*passwords), nl=False)


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


@redis.command()
@click.option("--yes", is_flag=True, help="take the queues over from the installation that they belong to")
@pass_session
def adopt(session: Session, yes: bool) -> None:
    """Take over the queues in Redis.

    A Redis belongs to one cluster and one Lease, and needs this after a move of one of them. The leader of this
    installation rebuilds the queues from its cluster, and a coordinator of the owner before leads no longer. Needs the
    Redis account of the coordinator.
    """
    session = session.with_role(DOCTOR)
    own = own_installation.read(session.cluster, session.settings.lease_namespace)
    client = connection.connect(session.redis, client_name="torchq-adopt")
    held, server = fitness.read_ownership(client), connection.address(client)
    if not installation.foreign(held.owner, own):
        nobody = "belongs to no installation yet, and will belong to the first one whose coordinator leads on it"
        belongs = "belongs to this installation" if held.owner else nobody
        click.echo(f"Redis at {server} {belongs}: there is nothing to do")
        return
    before = f"another installation ({installation.name(held.owner)})"
    if not yes:
        used = ", and a process of it has used it within the last minute: stop it first" if held.is_used else ""
        raise click.ClickException(
            f"Redis at {server} belongs to {before}{used}. `torchq redis adopt --yes` makes it belong to this one "
            f"({own}), whose leader then replaces its queues"
        )
    fitness.adopt(client, own)
    click.echo(f"Redis at {server} belongs to this installation ({own}) now, before to {before}")
