"""Small appends and polled reads by known clients, answered before their views.

Everything else is left to its view, which also words every refusal.
"""
