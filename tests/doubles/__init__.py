"""In-memory stores that follow the same contract as those in Redis. Type-checked."""
