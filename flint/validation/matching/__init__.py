"""Matching captured with executed ops, and when two count as the same."""
