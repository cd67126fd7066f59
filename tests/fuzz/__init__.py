"""A hostile user: whatever comes in, a result comes out, or one readable sentence."""
