"""Whole JAX programs: run on devices that are not there, captured where they repeat themselves."""
