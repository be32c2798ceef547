"""Ranks, mesh axes, groups of ranks, permutations, and the network dims that they map to."""
