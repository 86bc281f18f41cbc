"""Secret values: where they come from, how they are found, and how events lose them."""
