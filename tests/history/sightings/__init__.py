"""Tests of sightings."""
