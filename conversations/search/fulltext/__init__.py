"""Full-text search of events: words, queries, the index, and search in it and in events not indexed yet."""
