"""A clock that only tests move."""

START = 1_700_000_000.0


class Clock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def step(self, seconds: float) -> None:
        """So much later."""
        self.now += seconds
