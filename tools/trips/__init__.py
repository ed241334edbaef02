"""The processes of tools/pages/round_trips.py. Each makes, or reads, what all rows of one column
need, so that a table of cells in processes of their own does not import torch once for each cell.
"""
