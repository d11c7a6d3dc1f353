"""`torchq rpc`: the calls of Python programs, answered over standard input and output.

No decision about jobs or queues belongs here: a method calls the same functions as the command of the same name.
"""
