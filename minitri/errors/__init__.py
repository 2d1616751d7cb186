"""Makes the pages of `minitri explain CODE`. The file pages.toml has the texts and the programs of the pages. The file
pages.py runs the programs.
"""
