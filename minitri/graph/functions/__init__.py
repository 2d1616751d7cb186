"""The functions of the language that are not elementwise, as graph nodes.

In: a Typer and the bound arguments of a call. Out: an Array. `FUNCTIONS` finds them by name. The modules that are
imported here import the others.
"""

from minitri.graph.functions import axes, dtypes, einsum, products, scans, statistics
from minitri.graph.functions.registry import FUNCTIONS

__all__ = ["FUNCTIONS", "axes", "dtypes", "einsum", "products", "scans", "statistics"]
