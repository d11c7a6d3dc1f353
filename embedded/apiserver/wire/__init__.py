"""How requests and answers are written: media types, options, selectors, encodings.

Nothing here reads or changes stored objects.
"""
