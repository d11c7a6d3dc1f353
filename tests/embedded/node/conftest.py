"""A node for the tests of the node."""

from tests.support.embedded.fixtures import bare, stage, start

__all__ = ["bare", "stage", "start"]
