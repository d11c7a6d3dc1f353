"""A node for the tests of the scheduler."""

from tests.support.embedded.fixtures import bare, stage, start

__all__ = ["bare", "stage", "start"]
