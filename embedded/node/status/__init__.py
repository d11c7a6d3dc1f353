"""What the status of a pod says: phases, conditions, restarts. Pure.

The status is sent to the API server in `pods`.
"""
