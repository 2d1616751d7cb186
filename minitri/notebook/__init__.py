"""Makes output for notebooks: cards (small pieces of HTML) and figures. Defines the cell magic `%%minitri`."""
