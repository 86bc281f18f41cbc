"""What a repository says to agents: its instructions, skills, hooks, and scripts for its setup."""
