"""Images in, images out: folders, lists, shards, torch's and Hugging Face's data sets, single files, the samples."""

from whorl.data.image_files import MAX_PIXELS, Size, load_image, save_image
from whorl.data.images import BadImage, Images, iter_images, load_images, load_samples
from whorl.data.sets import ImageData, ImageSet, open_images
from whorl.data.starts import StartFolder

__all__ = [
    "MAX_PIXELS",
    "BadImage",
    "ImageData",
    "ImageSet",
    "Images",
    "Size",
    "StartFolder",
    "iter_images",
    "load_image",
    "load_images",
    "load_samples",
    "open_images",
    "save_image",
]
