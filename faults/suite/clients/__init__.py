"""The clients of a round, by the door that they use; one history records their requests and the answers."""
