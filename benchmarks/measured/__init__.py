"""What is measured: the work that clients ask for, and how it is prepared."""
