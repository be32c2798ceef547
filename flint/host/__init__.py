"""This machine: processes, signals, files that are whole or absent, units for people."""
