"""The deep GP."""
