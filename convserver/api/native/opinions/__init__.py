"""What users think of answers, on the native door."""
