"""The pure core: it decides, and never acts.

Standard library and msgspec structs only. No await, no clock, no path, no Polars: everything here is a
function of its arguments and can be tested in microseconds.
"""
