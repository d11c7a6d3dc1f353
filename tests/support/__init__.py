"""Parts that tests share: servers, builders of objects, clocks, waiting.

Nothing here asserts what the product does.
"""
