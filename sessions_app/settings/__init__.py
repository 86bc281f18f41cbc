"""Users' settings and secrets, tool servers, and the setups of agents."""
