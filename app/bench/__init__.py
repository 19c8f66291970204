"""Experiments that people run themselves: each command measures this installation, and prints what it found.

article/    the experiments of an article on constrained decoding, on the shipped models
serve/      the same records from this server and from others
"""
