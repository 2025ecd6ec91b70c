"""The benchmark suite: `python -m benchmarks --help`.

Its job is to run the same graphs through this package and through its peers, side by side on one machine, and
to say what came out. It never decides what is good enough, and it never skips work to look better: each
measurement proves afterwards that every step ran.
"""
