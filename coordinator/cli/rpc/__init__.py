"""`torchq rpc`: what Python programs may ask, answered over standard input and output.

No decision about jobs or queues belongs here: a method calls what the command of the same name calls.
"""
