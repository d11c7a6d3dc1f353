"""The option for the maximum size of a container's log."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli.main import main


@pytest.mark.parametrize("value", ["lots", "-1", "0", "512Ki", ""])
def test_an_invalid_log_size_is_rejected_with_the_name_of_the_option(tmp_path: Path, value: str) -> None:
    result = CliRunner().invoke(main, ["local", "up", "--data", str(tmp_path), "--container-log-max-size", value])
    assert result.exit_code == 2
    assert "--container-log-max-size" in result.output
    assert not list(tmp_path.iterdir())
