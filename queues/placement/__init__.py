"""Which nodes have room for the pods of a job. Pure numbers: nodes are free amounts, and sets of nodes are bits.

Nothing here knows a manifest, a pod or a clock. Whoever fills the room turns place conditions into sets of nodes.
"""
