"""Model code and saved files into StableHLO programs."""
