"""The optimisation passes, which this project calls rooms: each file or folder has one optimisation. The compiler also
works without any optimisation (`-O0`).
"""
