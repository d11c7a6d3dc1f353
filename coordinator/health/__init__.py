"""The judgement of running jobs: whether they hang, by the reports of their training code, and whether they are
complete.

The reports of training code are in `coordinator.reports`; the workers decide what to do about a job.
"""
