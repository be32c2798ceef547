"""ASTRA-sim: its configuration files, its binary, its result."""
