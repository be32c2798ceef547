"""Targets of XLA's compile-only GPU and TPU compilers."""
