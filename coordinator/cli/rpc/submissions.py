"""Calls that make jobs.

One rule: the same checks as those of the commands; all jobs of a call are made or none.
"""

import logging
from collections.abc import Mapping
from typing import Any

from coordinator.cli import outlook, submission
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]


def submit(access: ClusterAccess, params: Params, _call: OpenCall) -> list[str]:
    """Submit TorchJobs, and return their handles."""
    session = access.session
    named = ((f"manifests[{place}]", body) for place, body in enumerate(params["manifests"]))
    keys = submission.submit(
        session.cluster,
        submission.parse(named, session.namespace, params["folder"]),
        dry_run=params.get("dry_run", False),
        check_jobs=outlook.FeasibilityCheck(session),
        anyway=params.get("anyway", False),
        embedded=access.is_embedded,
        tell=logger.warning,
    )
    return [str(key) for key in keys]
