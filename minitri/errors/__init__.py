"""The pages of `minitri explain CODE`: pages.toml has what they say, pages.py shows them, examples.py runs them."""
