"""What a capture returns: programs on ranks, their folder on disk, what is in them."""
