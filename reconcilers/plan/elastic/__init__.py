"""The number of workers of an admitted job: requests for another number, the change, its victims, and the world after
the change.

One rule: the owner makes a request, the leader sets a target, the store gives a grant, and this package carries out a
change.
"""
