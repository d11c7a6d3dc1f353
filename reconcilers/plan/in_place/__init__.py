"""Pure decisions about restarts in place, and about pods that end in such a restart; not about the reasons for which a
job restarts.
"""
