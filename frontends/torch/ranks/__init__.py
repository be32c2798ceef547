"""Which ranks of a PyTorch step do the same, and the messages of the others."""
