"""Makes the pages of `minitri explain CODE`. pages.toml has their texts. pages.py runs the programs of the pages."""
