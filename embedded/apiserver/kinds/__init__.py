"""The content and limits of each built-in resource: its schema, defaults, rules, columns.

Rules that hold for every resource are in `schema`.
"""
