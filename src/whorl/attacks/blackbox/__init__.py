"""Attacks that see their target's answers alone, and count them."""
