"""Which ranks of a PyTorch step do the same, and what the others would send."""
