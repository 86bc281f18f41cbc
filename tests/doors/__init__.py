"""What the doors answer: requests, pages, validation, rights."""
