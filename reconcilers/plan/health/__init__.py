"""How a running job gets on: what follows from its steps, or from having made none, and for which pods it waits."""
