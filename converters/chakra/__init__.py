"""MLCommons Chakra execution traces."""
