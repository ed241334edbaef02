"""The quality that a real language model loses by quantization: perplexity of SmolLM2-135M-Instruct
on texts that calibration has not seen.
"""
