"""Adapters to other projects, which are imported where they are used and not by
``import mixed_gemm``.
"""
