"""The commands about models: the versions that jobs have trained, and where their files are."""
