"""Missing data that a program reads: reported, or made up on request."""
