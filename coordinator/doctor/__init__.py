"""`torchq doctor`: the comparison of the cluster, Redis and RQ, and its findings.

Repairs are made by the leader.
"""
