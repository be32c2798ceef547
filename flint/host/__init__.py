"""This machine: processes, signals, files that are complete or absent, readable units."""
