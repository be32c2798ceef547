"""Integers known at conversion: scalars and small arrays."""
