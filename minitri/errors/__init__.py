"""The pages of `minitri explain CODE`: pages.toml has what they say, pages.py runs their programs and shows them."""
