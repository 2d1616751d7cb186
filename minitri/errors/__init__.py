"""The pages of `minitri explain CODE`. pages.toml has their texts, pages.py runs their programs and formats them."""
