"""The devices of an absent cluster: hosts, slices, kinds, places in a torus."""
