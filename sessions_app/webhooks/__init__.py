"""Notifications of what happens: endpoints, deliveries, and their transport."""
