"""Records of a module as bytes, for another process."""
