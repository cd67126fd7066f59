"""Images in, images out: folders, lists, single files and the bundled samples."""

from whorl.data.image_files import MAX_PIXELS, Size, load_image, save_image
from whorl.data.images import BadImage, Images, iter_images, load_images, load_samples
from whorl.data.starts import StartFolder

__all__ = [
    "MAX_PIXELS",
    "BadImage",
    "Images",
    "Size",
    "StartFolder",
    "iter_images",
    "load_image",
    "load_images",
    "load_samples",
    "save_image",
]
