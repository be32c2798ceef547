"""Whole training programs: launched as their users launch them, captured where they train."""
