"""The forms in which readers of either wire are shown a stored event of any wire."""
