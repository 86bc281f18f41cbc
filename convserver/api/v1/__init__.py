"""The V1 doors: the agent face, which clients hold conversations by, and the app face, which lists them."""
