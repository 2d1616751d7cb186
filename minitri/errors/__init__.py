"""Makes the page that `minitri explain CODE` shows for an error code. The file pages.toml has the texts and the example
programs of all error codes. The file pages.py runs the example programs.
"""
