"""StableHLO modules into workload graphs: op records in, walked op by op."""
