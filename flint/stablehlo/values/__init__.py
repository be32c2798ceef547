"""Integers known at conversion: scalars, small arrays, and what a mask hides."""
