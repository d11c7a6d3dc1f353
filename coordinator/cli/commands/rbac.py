"""`torchq rbac`: the accounts of torchq, ready for `kubectl apply -f -`.

One rule: the command only prints; applying its output needs an account that may grant permissions.
"""

import re
from itertools import chain
from typing import Any

import click

from coordinator.cli.session import Session, pass_session
from coordinator.port_settings import ServiceName
from coordinator.rbac import account_manifests
from coordinator.rbac.account_manifests import RoleNames, Tenant
from coordinator.rbac.permissions import RESTORE, STANDING, WORKER
from crds.label_names import DNS_LABEL


@click.command()
@click.argument("roles", nargs=-1, type=click.Choice(list(STANDING)), metavar="[ROLE]...")
@click.option(
    "--system-namespace",
    default=account_manifests.SYSTEM_NAMESPACE,
    show_default=True,
    help="namespace of the accounts",
)
@click.option(
    "--namespaces",
    metavar="NAMESPACE,...",
    help="let workers create pods in these namespaces only (default: all), by a RoleBinding in each",
)
@click.option("--service", metavar="NAMESPACE/NAME", help="the coordinator's Service (default: the setting `service`)")
@click.option(
    "--recorder-service",
    metavar="NAMESPACE/NAME",
    help="the recorders' Service (default: the setting `recorder_service`)",
)
@click.option("--tenant", metavar="NAMESPACE", help="print only the permissions of this namespace's users")
@click.option("--queue", default="", help="queue that they may read (default: the queue with the namespace's name)")
@click.option("--user", "users", multiple=True, help="another user beside the namespace's torchq-user account")
@click.option("--group", "groups", multiple=True, help="another group of users")
@click.option(
    "--user-role",
    default=account_manifests.DEFAULT_NAMES.user_role,
    show_default=True,
    metavar="NAME",
    help="ClusterRole of users that --tenant binds",
)
@click.option("--restore", is_flag=True, help="print only the account of `torchq restore`; remove it afterwards")
@click.option(
    "--queue-admin",
    "queue_admins",
    multiple=True,
    metavar="NAME",
    help="print only the role of queue admins, bound to the user of this name; repeat it for several",
)
@pass_session
def rbac(
    session: Session,
    /,
    roles: tuple[str, ...],
    tenant: str | None,
    namespaces: str | None,
    **options: Any,
) -> None:
    """Print accounts and roles as manifests. ROLE is coordinator, worker, recorder, dashboard, user, doctor or reader.
    The default is all seven. The roles of single occasions, --restore and --queue-admin, are printed only on request.

    A worker's account may create and delete pods in every namespace, since jobs may be submitted to any. An account
    that may create any pod can read everything that pods may read. --namespaces restricts this to some namespaces. The
    account still lists and watches pods, nodes, queues, pod groups and container restarts of the whole cluster, reads
    TorchJobs and writes their status. A job of another namespace is admitted and reports PodsForbidden: give queues
    `namespaces` that match. To add a namespace, print and apply all manifests again. To remove a namespace, delete its
    RoleBinding torchq-worker-namespaced.
    """
    queue, users, groups, admins = (options[name] for name in ("queue", "users", "groups", "queue_admins"))
    on_request = options["restore"] or bool(admins)
    if tenant is None and (queue or users or groups):
        raise click.UsageError("--queue, --user and --group go with --tenant")
    if tenant is not None and (roles or on_request):
        raise click.UsageError("--tenant prints the permissions of users; omit the roles")
    if on_request and roles:
        raise click.UsageError("--restore and --queue-admin print roles of single occasions alone; omit the others")
    if "" in admins:
        raise click.UsageError("--queue-admin needs the name of a user")
    if namespaces is not None and (tenant is not None or on_request or (roles and WORKER.name not in roles)):
        raise click.UsageError("--namespaces is for the role worker")
    worker_namespaces = _names(namespaces) if namespaces is not None else ()
    settings = session.with_flags(service=options["service"], recorder_service=options["recorder_service"]).settings
    names = RoleNames(
        accounts=options["system_namespace"],
        lease=settings.lease_namespace,
        service=settings.service_name.name,
        recorder_service=ServiceName.parse(settings.recorder_service).name,
        user_role=options["user_role"],
    )
    if tenant is not None:
        users_of = Tenant(namespace=tenant, queue=queue, users=users, groups=groups)
        documents = account_manifests.tenant_manifests(users_of, names)
    elif on_request:
        documents = account_manifests.role_manifests(RESTORE, names) if options["restore"] else []
        documents += account_manifests.queue_admin_manifests(admins, names) if admins else []
    else:
        selected = [STANDING[name] for name in roles or STANDING]
        found = (account_manifests.role_manifests(role, names, worker_namespaces) for role in selected)
        documents = list(chain.from_iterable(found))
    click.echo(account_manifests.text(documents), nl=False)


def _names(text: str) -> tuple[str, ...]:
    """Parse a list of namespaces with commas; repeated names count once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    wrong = [name for name in names if not re.fullmatch(DNS_LABEL, name) or len(name) > 63]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not the name of a namespace", param_hint="--namespaces")
    return names
