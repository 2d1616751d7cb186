"""The command line of minitri."""
