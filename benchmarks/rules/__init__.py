"""The same bad rows, and the same bad file, through this package and through others that judge rows."""
