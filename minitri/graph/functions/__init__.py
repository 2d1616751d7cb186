"""The functions of the language that are not elementwise: each makes graph nodes.

In: a Typer and the bound arguments of a call. Out: an Array. `FUNCTIONS` has all functions by name. Each module adds
its functions when it is imported. This file imports some modules, and these import the others.
"""

from minitri.graph.functions import axes, dtype_queries, einsum, linear_algebra, scans, statistics
from minitri.graph.functions.registry import FUNCTIONS

__all__ = ["FUNCTIONS", "axes", "dtype_queries", "einsum", "linear_algebra", "scans", "statistics"]
