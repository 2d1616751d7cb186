"""The optimisation passes of the compiler. Most files and folders implement one optimisation each. The compiler also
works without any optimisation (`-O0`).
"""
