"""Gang scheduling: one backend for each scheduler that admits the pods of a job together or not at all.

Which pods form a gang is decided in `reconcilers`.
"""
