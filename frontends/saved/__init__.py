"""Saved programs: StableHLO and HLO files."""
