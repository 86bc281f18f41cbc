"""What the REST doors of V0 and V1 share."""
