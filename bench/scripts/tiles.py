"""256 tiles of an image, filtered and labelled."""

import pair
import numpy as np
from scipy import ndimage


def spots(number):
    tile = np.random.default_rng(number).random((128, 128))
    return int(ndimage.label(ndimage.gaussian_filter(tile, 2) > 0.52)[1])


pair.bag(spots, range(256), sum, 8)
