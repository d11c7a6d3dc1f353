"""One module for each version of the tables, which makes it from the version before.

The module and its revision have the number of the version. What a module adds has a default, for versions that do not
know it. Once released a module stays as it is.
"""
