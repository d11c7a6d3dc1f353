"""The leading coordinator: its Lease, its loop, and what it writes.

Whom the leader picks is decided in `queues.picking`.
"""
