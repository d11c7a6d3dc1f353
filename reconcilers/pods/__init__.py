"""The manifests of pods and services: names, labels, environment, gates. Pure.

When a pod is created is decided in `plan`.
"""
