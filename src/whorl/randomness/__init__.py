"""Random numbers that belong to an image, not to its place in a batch."""

from whorl.randomness.draws import Ids, check_ids, check_seed, image_keys, normal, substream, uniform

__all__ = ["Ids", "check_ids", "check_seed", "image_keys", "normal", "substream", "uniform"]
