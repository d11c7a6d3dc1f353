"""The servers of the contract suites, for the differential run."""

from tests.support.kube.fixtures import embedded_server, real_server

__all__ = ["embedded_server", "real_server"]
