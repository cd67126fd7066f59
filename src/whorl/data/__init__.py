"""Images in, images out: folders, lists, single files and the bundled samples."""

from whorl.data.images import BadImage, Images, iter_images, load_images
from whorl.data.pictures import MAX_PIXELS, Size, load_image, save_image
from whorl.data.samples import load_samples

__all__ = [
    "MAX_PIXELS",
    "BadImage",
    "Images",
    "Size",
    "iter_images",
    "load_image",
    "load_images",
    "load_samples",
    "save_image",
]
