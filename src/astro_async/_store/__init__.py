"""The store: the only code that touches the run directories.

It knows what is on disk and how it gets there whole. It never decides what runs, and never awaits: its
slow calls are made from worker threads.
"""
