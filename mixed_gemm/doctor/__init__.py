"""The doctor: which ops run here, whether they are right, and why the others do not run:
``mixed-gemm doctor``, or ``python -m mixed_gemm.doctor`` where the extra ``cli`` is not installed.

``diagnose`` collects it, ``text`` writes it on one screen. ``products`` multiplies with every op,
``devices`` looks at drivers and GPUs, ``packages`` names the versions that tests were run with.
"""
