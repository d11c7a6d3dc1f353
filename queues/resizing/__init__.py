"""Which elastic jobs change their size: who gives workers back to whom, and who grows into idle room.

One rule: pure. A plan follows from the picker's working copy, the elastic jobs, the time and the plan before.
"""
