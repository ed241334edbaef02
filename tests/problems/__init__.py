"""The one generator of valid problems: for every op what it turns on (``registry.OPS``), arrays of
cases in which every two values meet, cases at random, tensors in odd places with poison around
them, and how far an output is from what it must be.
"""
