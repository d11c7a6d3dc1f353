"""Where the pods of gangs find room: nodes as free amounts, and sets of nodes as bits. No manifest, no clock."""
