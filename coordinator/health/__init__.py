"""The judgement of running jobs: whether they hang, by what their training code reports, and whether they are complete.

What the code reports, and how it is kept, is in `coordinator.reports`; what is done about a job, workers decide.
"""
