"""Tests of the coordinator with nodes that the test plays."""
