"""Makes the pages of `minitri explain CODE`. pages.toml has the texts and the programs of the pages, and pages.py runs
the programs.
"""
