"""Importing other programs' conversations, and a report that accounts for every record of them."""
