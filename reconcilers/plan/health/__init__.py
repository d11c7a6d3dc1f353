"""How a job gets on: whether its pods run, and if not, why; what follows from its steps, or from having made none."""
