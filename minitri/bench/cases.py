"""The table of measured cases.

A case is a row in memory.py, attention.py or products.py and nothing elsewhere.
"""

from __future__ import annotations

from minitri.bench import attention, memory, products
from minitri.bench.case import Case


def cases() -> tuple[Case, ...]:
    """Short ones first."""
    return (*memory.cases(), *attention.cases(), *products.cases())
