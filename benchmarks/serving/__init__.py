"""vLLM with our kernels in it: which tokens it gives, how fast, and the layer object alone. It runs
in an environment of its own (tools/setup_vllm.sh), since vLLM pins its torch.
"""
