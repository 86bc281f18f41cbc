"""The project: settings, routes, and the doors that speak HTTP."""

__version__ = "0.1.0"
