"""The ops that a rank should run according to a capture, in the form of traces."""
