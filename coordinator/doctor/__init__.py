"""`torchq doctor`: it compares the cluster, Redis and RQ, and says what disagrees.

Repairs are made by the leader.
"""
