"""Deliberate mistakes in csrc/, to see whether the tests find them: which there are, where each is
made, and a copy of the sources that can make any of them. tools/mutants.py runs the tests.
"""
