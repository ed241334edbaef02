"""The path of ``AllReduce`` in pickles that older versions wrote."""

from ..distributed.all_reduce import AllReduce as AllReduce
