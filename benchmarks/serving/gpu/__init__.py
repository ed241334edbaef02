"""The common parts of the programs that run vLLM's engine on a GPU: processes, engines, what they
run, and the arithmetic of their results.
"""
