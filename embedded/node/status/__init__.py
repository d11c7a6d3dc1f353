"""The content of the status of a pod: phases, conditions, restarts. Pure.

The status is sent to the API server in `pods`.
"""
