"""The devices of a cluster that is not there: hosts, slices, kinds, places in a torus."""
