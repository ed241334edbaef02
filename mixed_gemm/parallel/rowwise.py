"""The path of ``RowwiseParallel`` in pickles that older versions wrote."""

from ..distributed.rowwise import RowwiseParallel as RowwiseParallel
