"""The parts that only `bench elastic` needs: its job, the lines of its training, and its observations."""
