"""Tool servers that are programs: their processes, and what they write to standard error."""
