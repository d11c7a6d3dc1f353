"""What a client meets first: sockets, TLS, the token, discovery, OpenAPI, logs of pods.

What a request does to objects is in `verbs`.
"""
