"""The command line, run in the test's process against the embedded API server."""

from typing import Protocol

from click.testing import CliRunner, Result

from coordinator.cli import main


class Torchq(Protocol):
    """Run a command, and fail if its exit code is not the expected one or if it printed a traceback."""

    def __call__(self, *arguments: str, code: int = 0, **environ: str) -> Result: ...


def command(defaults: dict[str, str]) -> Torchq:
    """Return the command with these environment variables as defaults."""

    def run(*arguments: str, code: int = 0, **environ: str) -> Result:
        result = CliRunner().invoke(main.main, arguments, env={**defaults, **environ}, prog_name="torchq")
        assert result.exit_code == code, (result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


def table(text: str) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in text.splitlines()]
