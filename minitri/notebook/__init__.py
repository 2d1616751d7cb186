"""Makes what a notebook shows: cards in HTML, figures, and the magic `%%minitri`."""
