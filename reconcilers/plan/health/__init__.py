"""The state of a running job: whether its pods run, and if not, why; and the consequences of its steps, or of a
lack of steps.
"""
