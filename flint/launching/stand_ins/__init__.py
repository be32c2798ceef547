"""Data that a program reads and that is not there: named, or made up on request."""
