"""The command line in this process, against the embedded API server."""

from typing import Protocol

from click.testing import CliRunner, Result

from coordinator.cli import main


class Torchq(Protocol):
    """Runs a command; fails unless its exit code is the one expected, or if there was a traceback."""

    def __call__(self, *arguments: str, code: int = 0, **environ: str) -> Result: ...


def command(defaults: dict[str, str]) -> Torchq:
    """The command with these variables set unless said otherwise."""

    def run(*arguments: str, code: int = 0, **environ: str) -> Result:
        result = CliRunner().invoke(main.main, arguments, env={**defaults, **environ}, prog_name="torchq")
        assert result.exit_code == code, (result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


def table(text: str) -> list[list[str]]:
    """Lines as words."""
    return [line.split() for line in text.splitlines()]
