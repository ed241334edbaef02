"""What the programs that run vLLM's engine on a GPU share: processes, engines, what they run, and
the arithmetic of their results.
"""
