"""What sights of objects say about the rows of the history: jobs, pods that outlive their jobs, queues and the pool.

Everything here is pure. How rows are kept does not belong here.
"""
