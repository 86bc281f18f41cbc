"""The V1 doors: the agent face, with which clients hold conversations, and the app face, which lists them."""
