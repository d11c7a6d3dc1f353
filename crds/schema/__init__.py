"""From the models to CustomResourceDefinitions: structural schemas, CEL rules, rules of change.

Nothing here knows a particular kind.
"""
