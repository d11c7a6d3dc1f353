"""Changes of the world of an elastic job in the mode InPlaceRestart, and the restarts that they need.

Ranks and places of pods are in `reconcilers.pods.static_world`.
"""
