"""Makes the pages of `minitri explain CODE`. pages.toml has the texts of the pages. pages.py runs their programs."""
