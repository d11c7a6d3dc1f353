"""`torchq rbac`: the accounts of torchq, ready for `kubectl apply -f -`.

One rule: prints; whoever applies it has to be allowed to.
"""

import re

import click

from coordinator.cli.session import Session, pass_session
from coordinator.rbac import manifests
from coordinator.rbac.manifests import Places, Tenant
from coordinator.rbac.permissions import ROLES, WORKER
from crds.model import DNS_LABEL


@click.command()
@click.argument("roles", nargs=-1, type=click.Choice(list(ROLES)), metavar="[ROLE]...")
@click.option("--system-namespace", default=manifests.SYSTEM_NAMESPACE, show_default=True, help="home of the accounts")
@click.option(
    "--namespaces",
    metavar="NAMESPACE,...",
    help="let workers make pods in these namespaces only, by a RoleBinding in each; without it they may in all",
)
@click.option("--tenant", metavar="NAMESPACE", help="print what users of this namespace need, and nothing else")
@click.option("--queue", default="", help="the queue they may look at (default: the one named as the namespace)")
@click.option("--user", "users", multiple=True, help="one more user beside the namespace's torchq-user account")
@click.option("--group", "groups", multiple=True, help="one more group of users")
@pass_session
def rbac(
    session: Session,
    roles: tuple[str, ...],
    system_namespace: str,
    namespaces: str | None,
    tenant: str | None,
    queue: str,
    users: tuple[str, ...],
    groups: tuple[str, ...],
) -> None:
    """Print accounts and roles: coordinator, worker, user, queue-admin, doctor; all unless some are named.

    A worker's account may make and delete pods in every namespace, as jobs may be submitted to any: an account that
    can make any pod can read what pods may read. With --namespaces it may in those alone. It still lists and watches
    pods, nodes, queues, pod groups and container restarts of the whole cluster, reads TorchJobs and writes their
    status. A job of another namespace is admitted and says PodsForbidden: give queues `namespaces` that match. To add
    a namespace, print and apply it all again; to take one away, delete its RoleBinding torchq-worker-namespaced.
    """
    if tenant is None and (queue or users or groups):
        raise click.UsageError("--queue, --user and --group go with --tenant")
    if tenant is not None and roles:
        raise click.UsageError("--tenant is for users; leave the roles out")
    if namespaces is not None and (tenant is not None or (roles and WORKER.name not in roles)):
        raise click.UsageError("--namespaces is for the role worker")
    some = _names(namespaces) if namespaces is not None else ()
    if tenant is not None:
        found = manifests.tenant(Tenant(namespace=tenant, queue=queue, users=users, groups=groups))
    else:
        places = Places(accounts=system_namespace, lease=session.settings.lease_namespace)
        found = [each for name in roles or ROLES for each in manifests.role(ROLES[name], places, some)]
    click.echo(manifests.text(found), nl=False)


def _names(text: str) -> tuple[str, ...]:
    """The namespaces of a list with commas, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    wrong = [name for name in names if not re.fullmatch(DNS_LABEL, name) or len(name) > 63]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not the name of a namespace", param_hint="--namespaces")
    return names
