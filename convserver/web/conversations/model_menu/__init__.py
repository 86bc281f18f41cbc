"""The menu of models at the composer."""
