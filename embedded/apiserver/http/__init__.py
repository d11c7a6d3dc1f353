"""The outer layer of the API server: sockets, TLS, the token, discovery, OpenAPI, logs of pods.

What a request does to objects is in `verbs`.
"""
