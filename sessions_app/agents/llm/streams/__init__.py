"""Answers of models as servers send them: what was said, which calls are complete, and what ended them."""
