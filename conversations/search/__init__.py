"""Search: titles, the full text of events, and the logs of many conversations."""
