"""Agents' loops: the right to run one, its turns, and the commands to it."""
