"""Which captured op is which executed one, and when two count as the same."""
