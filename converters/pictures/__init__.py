"""Timelines, network diagrams and reports for people."""
