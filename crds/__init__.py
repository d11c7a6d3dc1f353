"""The API types: TorchJob and TenantQueue, their fields, amounts, names and rules.

Nothing here talks to a server. No other package is imported.
"""
