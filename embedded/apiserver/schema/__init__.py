"""The operations on objects of any schema: validation, CEL, pruning, patches, server-side apply.

Nothing here knows a particular resource.
"""
