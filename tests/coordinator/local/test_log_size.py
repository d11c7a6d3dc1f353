"""How much of a container's log is kept: what the option takes."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli.main import main


@pytest.mark.parametrize("value", ["lots", "-1", "0", "512Ki", ""])
def test_a_wrong_size_of_logs_is_refused_with_the_name_of_the_option(tmp_path: Path, value: str) -> None:
    result = CliRunner().invoke(main, ["local", "up", "--data", str(tmp_path), "--container-log-max-size", value])
    assert result.exit_code == 2
    assert "--container-log-max-size" in result.output
    assert not list(tmp_path.iterdir())
