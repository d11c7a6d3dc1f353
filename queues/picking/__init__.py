"""The choice of the next jobs: fair shares, quotas, room, backfilling. Pure.

Reading and writing the store is in `storage`.
"""
