"""The text of stages, read back."""
