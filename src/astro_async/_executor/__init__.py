"""The executor: the only code that awaits.

One coordinator task owns the state of a run. Steps run elsewhere and send back one value each, their
outcome.
"""
