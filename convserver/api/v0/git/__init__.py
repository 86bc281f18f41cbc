"""Git providers at the V0 door: tokens, repositories, microagents, suggested tasks."""
