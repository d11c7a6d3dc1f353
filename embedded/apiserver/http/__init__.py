"""The outer layer of the API server: sockets, TLS, the token, discovery, OpenAPI, logs of pods.

The effects of a request on objects are in `verbs`.
"""
