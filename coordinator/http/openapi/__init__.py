"""The description of the read-only API: the models of its documents, and the OpenAPI document made from them.

The answers themselves are made in `coordinator.query`; the tests hold every answer against these models.
"""
