"""`torchq restore`: which objects a backup has, what is to be done about each, and the requests that do it.

How a backup is made is no part of it: kubectl prints one.
"""
