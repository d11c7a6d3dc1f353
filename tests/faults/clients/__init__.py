"""Programs of users that write to the API server while they are killed, interrupted and refused."""
