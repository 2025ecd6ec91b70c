"""The Polars work: Parquet, casting without loss, row rules, splits, and finding rows again.

Everything here takes frames and string paths and gives frames back. It knows no pipeline, no run and no
directory layout, and it never chooses a path: the caller says where a file goes.
"""
