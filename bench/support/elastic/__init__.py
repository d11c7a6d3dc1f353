"""What `bench elastic` needs beside the other benchmarks: its job, the lines of its training, and what it observes."""
