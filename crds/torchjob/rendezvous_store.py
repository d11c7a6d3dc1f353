"""The program of the rendezvous store: the server at which the workers of an elastic job meet.

One rule: it needs Python and torch alone, so that it runs in the image of the workers.

A worker that hosted the store would end the whole job with itself. The program ends only by a signal. SIGTERM is
handled, because the first process of a container ignores it otherwise. It is handled before torch is imported, which
takes seconds, and it is a failure: without the store no worker can go on.
"""

PORT_VARIABLE = "TORCHQ_RENDEZVOUS_PORT"
"""The variable with the port on which the store listens."""

PROGRAM = f"""\
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
from torch.distributed import TCPStore
port = int(os.environ["{PORT_VARIABLE}"])
store = TCPStore("localhost", port, is_master=True, wait_for_workers=False)
print(f"the rendezvous store listens on port {{store.port}}", flush=True)
while True:
    signal.pause()
"""
"""The program of the store, for `python -c`."""
