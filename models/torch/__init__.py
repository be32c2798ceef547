"""Real PyTorch training steps: what README, tests and benchmarks capture."""
