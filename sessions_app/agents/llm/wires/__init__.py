"""A provider's wire each: how its library is told of a model. Imported by `library`, on first use."""
