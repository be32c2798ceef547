"""A JAX step lowered to one global StableHLO program, without devices."""
