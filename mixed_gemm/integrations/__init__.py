"""Adapters to other projects. Each imports what it adapts to, so nothing here is imported by
``import mixed_gemm``.
"""
