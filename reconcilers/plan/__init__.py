"""What a job needs next: its lifecycle, restarts, gangs and status. Pure.

Nothing here calls a server; `apply` carries the plan out.
"""
