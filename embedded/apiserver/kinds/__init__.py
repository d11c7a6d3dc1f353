"""What each built-in resource is and allows: its schema, defaults, rules, columns.

Rules that hold for every resource are in `schema`.
"""
