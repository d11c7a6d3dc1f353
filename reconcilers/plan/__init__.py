"""The next needs of a job: its lifecycle, restarts, gangs and status. Pure.

Nothing here calls a server; `apply` carries the plan out.
"""
