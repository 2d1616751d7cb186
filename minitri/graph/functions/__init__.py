"""The functions of the language that are not elementwise, as graph nodes.

In: a Typer and the bound arguments of a call. Out: an Array. `FUNCTIONS` finds them by name.
"""

from minitri.graph.functions import contractions, making, ranges, reductions, views
from minitri.graph.functions.registry import FUNCTIONS

__all__ = ["FUNCTIONS", "contractions", "making", "ranges", "reductions", "views"]
