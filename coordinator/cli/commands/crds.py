"""`torchq crds`: the definitions of the API types."""

import click

from crds import generate


@click.command()
def crds() -> None:
    """Print the CustomResourceDefinitions. The output is ready for `kubectl apply -f -`."""
    click.echo(generate.documents(), nl=False)
