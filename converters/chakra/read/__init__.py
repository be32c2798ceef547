"""Execution traces from files."""
