"""`python -m minitri`: the same as the command `minitri`."""

from minitri.cli.main import main

if __name__ == "__main__":
    main(prog_name="minitri")
