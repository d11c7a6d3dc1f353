"""`torchq dashboard token`: a token for the login of a dashboard in the cluster.

One rule: the token alone goes to standard output.
"""

import click

from coordinator.access import shown_tokens
from coordinator.access.readers import ACCOUNT
from coordinator.cli.session import Session, pass_session, with_namespace
from coordinator.errors import CoordinatorError
from kube import errors

SECONDS = 8 * 3600


@click.command()
@pass_session
def token(session: Session) -> None:
    """Print a token for a dashboard in the cluster.

    The token is one of the account torchq-user of the namespace, valid for 8 hours. Whoever has it may do what users of
    the namespace may do.
    """
    if session.is_embedded:
        raise CoordinatorError("a local cluster needs no token: torchq dashboard shows its pages without a login")
    namespace = session.namespace
    try:
        made, until = session.cluster.issue_token(namespace, ACCOUNT, "", SECONDS)
    except errors.NotFound as error:
        raise CoordinatorError(shown_tokens.describe(error, namespace, ACCOUNT)) from error
    click.echo(made)
    click.echo(f"a token of account {namespace}/{ACCOUNT}, valid until {until}: whoever has it acts as that", err=True)


with_namespace(token)
