"""A clock for tests, whose time changes only when a test advances it."""

START = 1_700_000_000.0


class Clock:
    """A clock whose time changes only through `step`."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def step(self, seconds: float) -> None:
        """Advance the time by the given seconds."""
        self.now += seconds
