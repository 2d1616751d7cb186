"""The optimisations, called rooms: each file or folder has one optimisation. The compiler also works without any
optimisation (`-O0`).
"""
