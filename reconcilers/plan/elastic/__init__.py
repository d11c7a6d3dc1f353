"""The number of workers of an admitted job: requests for another one, the change, its victims, and the world after it.

One rule: a request is what the owner asks for, a target what the leader wants, a grant what the store gives, and a
change what is carried out here.
"""
