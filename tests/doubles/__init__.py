"""In-memory stores that follow the same contracts as the stores in Redis. These stores are type-checked."""
