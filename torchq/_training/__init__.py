"""The functions that training code calls inside a job: reports, results, and the folder of its outputs. Nothing here
speaks to the program `torchq`.
"""
