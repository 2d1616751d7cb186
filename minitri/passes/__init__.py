"""How a pass runs: its contract, what it is told, and the manager that runs, verifies and times a row of them.

The table of the passes themselves is `PASSES` in minitri/pipeline.py.
"""
