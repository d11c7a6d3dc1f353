"""In-memory stores that follow the same contracts as the stores in Redis. They are type-checked."""
