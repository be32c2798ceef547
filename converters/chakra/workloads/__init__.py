"""Execution traces, of other tools as of Flint, as workloads."""
