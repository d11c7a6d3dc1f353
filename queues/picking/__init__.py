"""Whose job goes next: fair shares, quotas, room, backfilling. Pure.

Reading and writing the store is in `storage`.
"""
