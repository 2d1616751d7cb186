"""Generated pages: operators and functions, names of other libraries."""
