"""Directories of files, one for each conversation that has any: opened safely, bounded, counted, purged."""
