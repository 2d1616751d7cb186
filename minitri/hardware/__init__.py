"""The abilities and limits of GPU chips, and predictions of the time that a program takes on a chip."""
