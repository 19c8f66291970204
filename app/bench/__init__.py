"""Experiments that people run themselves: each command here measures this installation, and prints what it found."""
