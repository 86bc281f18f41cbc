"""The clients of a round, by the door that they use; what each sends and is told goes into one history."""
