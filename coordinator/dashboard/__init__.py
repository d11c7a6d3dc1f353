"""The dashboard: pages in a browser that show the queues live, and say why a job waits."""
