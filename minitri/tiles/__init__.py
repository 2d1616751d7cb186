"""Tile programs: the code that each grid program runs, block by block, with masks on loads and stores."""
