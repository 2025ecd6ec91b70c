"""One module for each system, run as a program in an environment of its own.

They import `benchmarks.protocol`, `benchmarks.shapes` and the system they measure, and nothing else.
"""
