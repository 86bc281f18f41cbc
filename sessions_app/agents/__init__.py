"""The agent protocol, and the agents that come with the server."""
