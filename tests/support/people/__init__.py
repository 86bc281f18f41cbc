"""Clients, browsers and agents that act in tests."""
