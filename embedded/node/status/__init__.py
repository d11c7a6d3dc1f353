"""What the status of a pod says: phases, conditions, restarts. Pure.

It is sent to the API server in `pods`.
"""
