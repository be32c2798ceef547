"""The ops that PyTorch dispatches in one step of one rank, as a recording."""
