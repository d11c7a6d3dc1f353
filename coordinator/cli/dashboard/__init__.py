"""`torchq dashboard`: the pages of a user on this machine, and those of a cluster."""
