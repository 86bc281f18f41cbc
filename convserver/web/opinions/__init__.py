"""What users think of answers, on pages."""
