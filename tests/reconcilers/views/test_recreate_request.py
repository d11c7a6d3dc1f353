"""What the status of a ContainerRecreateRequest means. OpenKruise ends every request in the phase Completed."""

from typing import Any

import pytest

from reconcilers.views import recreate_request

DONE = {"name": "torch", "phase": "Succeeded"}
BROKEN = {"name": "log", "phase": "Failed", "message": "it does not start"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ("InProgress", "")),
        ({"phase": "Recreating", "containerRecreateStates": [DONE]}, ("InProgress", "")),
        ({"phase": "Completed", "containerRecreateStates": [DONE]}, ("Done", "")),
        (
            {"phase": "Completed", "containerRecreateStates": [DONE], "message": "pod has gone"},
            ("Failed", "pod has gone"),
        ),
        (
            {"phase": "Completed", "containerRecreateStates": [DONE, BROKEN]},
            ("Failed", "container log: it does not start"),
        ),
        (
            {"phase": "Completed", "containerRecreateStates": [{"name": "torch", "phase": "Recreating"}]},
            ("Failed", "container torch: Recreating"),
        ),
        ({"phase": "Completed"}, ("Failed", "it completed without recreating any container")),
    ],
)
def test_only_a_request_that_recreated_every_container_without_a_message_is_done(
    status: dict[str, Any], expected: tuple[str, str]
) -> None:
    metadata = {"namespace": "team", "name": "again", "uid": "r1"}
    found = recreate_request.trim({"metadata": metadata, "status": status})
    assert (found.verdict, found.message) == expected
