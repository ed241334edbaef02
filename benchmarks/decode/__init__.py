"""The time of a whole step of a decoder, and of its parts: `python -m benchmarks decode`."""
