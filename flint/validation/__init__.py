"""Captures against post-execution traces: what ran, what was captured, and where they differ."""
