"""`torchq config`: every setting, its value, where the value comes from, and what it means.

One rule: secrets are masked. A setting of the installation has the value that the coordinator uses; the others are
those of this command.
"""

from collections.abc import Mapping

import click

from coordinator import settings as settings_module
from coordinator.cli import api_client, output
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.refusals import words
from coordinator.cli.session import Session, pass_session
from coordinator.settings import OF_COMMANDS, Settings

FROM_CLUSTER, DEFAULT = "cluster", "default"
"""Sources of values."""


@click.command()
@click.argument("names", nargs=-1, metavar="[SETTING...]")
@click.option("--own", is_flag=True, help="only the settings of this command; the coordinator is not asked")
@output.FORM
@pass_session
def config(session: Session, names: tuple[str, ...], own: bool, form: str | None) -> None:
    """Print settings, their values and meanings.

    Secrets are masked. Settings of the installation have the values of the coordinator. They are set for `torchq
    coordinator`, `torchq worker` and `torchq local up`: by a variable TORCHQ_NAME, or in a file (`torchq --config FILE
    local up`).
    """
    for name in names:
        if name not in Settings.model_fields:
            raise click.UsageError(f"there is no setting {name!r}{words.suggestion(name, Settings.model_fields)}")
    told = _describe(session, {} if own else _of_cluster(session))
    output.show({name: told[name] for name in names or told}, form, _format)


def _format(shown: Mapping[str, Mapping[str, str]]) -> str:
    rows = [(name, each["value"] or '""', each["source"], each["meaning"]) for name, each in shown.items()]
    return output.columns(("SETTING", "VALUE", "SOURCE", "MEANING"), rows)


def _of_cluster(session: Session) -> Mapping[str, str]:
    """Return the settings of the coordinator; none, with a note, if it does not answer."""
    try:
        answer = api_client.coordinator(session)("/v1/settings")
        return {str(name): str(value) for name, value in answer["settings"].items()}
    except (*USER_ERRORS, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, USER_ERRORS) else "its answer has no settings"
        click.echo(f"note: all values are those of this command; the coordinator's are not known: {reason}", err=True)
        return {}


def _describe(session: Session, of_cluster: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return value, source and meaning by setting."""
    resolved = session.resolved_settings
    own = settings_module.describe(resolved.settings)["settings"] | {"kubeconfig": session.target.kubeconfig}
    sources = {**resolved.sources, "kubeconfig": session.target.source}
    told = {}
    for name, field in Settings.model_fields.items():
        value, source = own[name], sources[name]
        if name in of_cluster and name not in OF_COMMANDS:
            unused = "" if source == DEFAULT else f" ({source} of this command is not used)"
            value, source = of_cluster[name], FROM_CLUSTER + unused
        told[name] = {"value": value, "source": source, "meaning": field.description or ""}
    return told
