"""What chips can do, and what a program costs on them."""
