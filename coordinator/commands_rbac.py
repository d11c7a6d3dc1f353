"""`torchq rbac`: the accounts of torchq, ready for `kubectl apply -f -`.

One rule: prints; whoever applies it has to be allowed to.
"""

import click

from coordinator import rbac as manifests
from coordinator.permissions import ROLES
from coordinator.rbac import Places, Tenant
from coordinator.session import Session, pass_session


@click.command()
@click.argument("roles", nargs=-1, type=click.Choice(list(ROLES)), metavar="[ROLE]...")
@click.option("--system-namespace", default=manifests.SYSTEM_NAMESPACE, show_default=True, help="home of the accounts")
@click.option("--tenant", metavar="NAMESPACE", help="print what users of this namespace need, and nothing else")
@click.option("--queue", default="", help="the queue they may look at (default: the one named as the namespace)")
@click.option("--user", "users", multiple=True, help="one more user beside the namespace's torchq-user account")
@click.option("--group", "groups", multiple=True, help="one more group of users")
@pass_session
def rbac(
    session: Session,
    roles: tuple[str, ...],
    system_namespace: str,
    tenant: str | None,
    queue: str,
    users: tuple[str, ...],
    groups: tuple[str, ...],
) -> None:
    """Print accounts and roles: coordinator, worker, user, queue-admin, doctor; all unless some are named."""
    if tenant is None and (queue or users or groups):
        raise click.UsageError("--queue, --user and --group go with --tenant")
    if tenant is not None and roles:
        raise click.UsageError("--tenant is for users; leave the roles out")
    if tenant is not None:
        found = manifests.tenant(Tenant(namespace=tenant, queue=queue, users=users, groups=groups))
    else:
        places = Places(accounts=system_namespace, lease=session.settings.lease_namespace)
        found = [each for name in roles or ROLES for each in manifests.role(ROLES[name], places)]
    click.echo(manifests.text(found), nl=False)
