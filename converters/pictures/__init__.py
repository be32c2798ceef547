"""Timelines, networks and reports for people to look at."""
