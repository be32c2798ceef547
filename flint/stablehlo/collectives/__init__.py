"""Collectives of a module: what is exchanged, among which ranks."""
