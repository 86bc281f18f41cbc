"""The app face: lists, starts and sandboxes."""
