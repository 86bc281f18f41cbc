"""Who answers: the agent protocol and the agents that come with the server."""
