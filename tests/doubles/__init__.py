"""In-memory stand-ins for Redis: a queue store and a work queue in one process.

They obey the same contracts as the code that runs on Redis, and the contract tests run on both. No installed code uses
them. A stand-in belongs here if tests of several folders use it; builders of values do not.
"""
