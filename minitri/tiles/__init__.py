"""Tile programs: the code that each program of a grid runs, block by block, with masks on loads and stores."""
