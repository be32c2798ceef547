"""Whole training programs: launched as usual, and captured at their training step."""
