"""A frozen network made ready for many input gradients: folded, rewritten, recorded. It knows nothing of attacks."""
