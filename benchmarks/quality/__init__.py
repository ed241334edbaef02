"""The cost of quantization for a real language model: perplexity of SmolLM2-135M-Instruct on texts
that calibration has not seen.
"""
