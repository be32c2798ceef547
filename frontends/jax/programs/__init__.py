"""Whole JAX programs: run on absent devices, captured when they repeat themselves."""
