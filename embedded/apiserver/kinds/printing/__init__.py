"""How objects are printed as tables: columns and ages.

What a resource allows is in the folder above.
"""
