"""Programs of users that write to the API server. Meanwhile the programs are killed or interrupted, and calls are
refused.
"""
