"""The parts that make the distribution `torchq-client`: its pyproject.toml, and the program that writes its calls."""
