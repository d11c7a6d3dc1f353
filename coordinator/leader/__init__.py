"""The leading coordinator: its Lease, its loop, and what the leader writes.

Which jobs the leader admits is decided in `queues.picking`.
"""
