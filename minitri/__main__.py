"""Runs the command `minitri` when Python is started with `python -m minitri`."""

from minitri.cli.main import main

if __name__ == "__main__":
    main(prog_name="minitri")
