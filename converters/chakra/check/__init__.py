"""Proof that consumers can run a set of execution traces to its end."""
