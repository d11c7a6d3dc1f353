"""How objects are printed as tables: columns and ages.

The rules of a resource are in the folder above.
"""
