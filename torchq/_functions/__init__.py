"""Functions that run as jobs: what is sent with the job, how the function is described, and what is refused. A job
gets the name of the function; nothing is pickled.
"""
