"""What a user of the agent face keeps here: settings, secrets, profiles, and the models to choose from."""
