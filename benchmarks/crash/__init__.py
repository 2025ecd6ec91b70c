"""The random kills of `tests/crash/random_kills.py`, dealt to other systems."""
