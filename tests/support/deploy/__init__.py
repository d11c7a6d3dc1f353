"""Releases of the chart on a real API server."""
