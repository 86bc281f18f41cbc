"""Full text of events: words, questions about them, the index, and what finds in it and behind it."""
