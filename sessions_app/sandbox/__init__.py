"""Where commands of agents run: programs with limits, which see a workspace and nothing of the server."""
