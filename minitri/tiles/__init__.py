"""Tile programs: what one program of a grid does, block by block, with its masks."""
