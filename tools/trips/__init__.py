"""The processes of tools/round_trips.py: each makes, or reads, what all rows of one column need, so
that a table of cells in processes of their own does not import torch once for each cell.
"""
