"""Agents' loops: who may run one, its turns, and what others ask of it."""
