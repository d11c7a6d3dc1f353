"""The judgement of running jobs by what their training code reports: whether they hang.

What the code reports, and how it is kept, is in `coordinator.reports`; what is done about a hang, workers decide.
"""
