"""How the suite runs: its processes, their databases, and the second try of a failed test."""
