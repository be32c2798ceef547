"""What a capture says that a rank runs, in the form in which traces say it."""
