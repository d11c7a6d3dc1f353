"""The parts of the simulation of autoscaling: scenarios, elastic jobs, their arena and the policies.

One rule: pure. The result depends only on the jobs and times that a caller passes.
"""
