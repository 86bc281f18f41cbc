"""What readers of either wire are shown of a stored event, whichever wire it came by."""
