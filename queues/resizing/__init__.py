"""Which elastic jobs change their size: which jobs give workers back to which jobs, and which jobs grow into idle room.

One rule: pure. A plan follows from the picker's working copy, the elastic jobs, the time and the plan before.
"""
