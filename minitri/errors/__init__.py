"""The pages of `minitri explain CODE`: texts.py has what they say, pages.py runs and shows them."""
