"""Whole PyTorch programs: their launchers, and how their step is found and recorded."""
