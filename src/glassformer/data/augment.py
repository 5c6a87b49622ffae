"""Training images varied without changing what they show: moved, mirrored, blanked in part, mixed.

Each function draws from the generator it is given and from nothing else.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from glassformer.data.config import AugmentConfig

_PADDING = {"edge": "border", "black": "zeros", "mirror": "reflection"}  # what torch calls them
_ERASED_AREA, _ERASED_RATIO = (0.02, 0.33), 3.0  # share of the image; longer / shorter side at most


def move(
    images: Float[Tensor, "rows channels height width"], config: AugmentConfig, generator: np.random.Generator
) -> Float[Tensor, "rows channels height width"]:
    """Flip, then turn, scale, shear and shift each image by its own random amounts."""
    rows = len(images)
    if config.flip:
        mirrored = torch.from_numpy(generator.random(rows) < config.flip)
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    if not config.moves:
        return images

    def draw(limit: float, *size: int) -> Tensor:
        return torch.from_numpy(generator.uniform(-limit, limit, (rows, *size)))

    angle, scale = draw(config.rotation), 1 + draw(config.scale)
    return affine(images, angle, scale, draw(config.shear), draw(config.shift, 2), config.border)


def affine(
    images: Float[Tensor, "rows channels height width"],
    angle: Float[Tensor, " rows"],
    scale: Float[Tensor, " rows"],
    shear: Float[Tensor, " rows"],
    shift: Float[Tensor, "rows 2"],
    border: str = "edge",
) -> Float[Tensor, "rows channels height width"]:
    """About its center, lean each image to the right by ``shear``, enlarge it, turn it to the left, then move it.

    Angles in degrees; ``shift`` to the right and down, as shares of width and height. Bilinear.
    """
    height, width = images.shape[-2:]
    lean, turn = torch.tan(shear * math.pi / 180), angle * math.pi / 180
    sine, cosine = torch.sin(turn), torch.cos(turn)
    # grid_sample asks where each pixel of the result comes from, so this is the inverse of what is described above,
    # in units of half a side; y grows downwards.
    across = torch.stack((cosine + lean * sine, (lean * cosine - sine) * height / width), dim=-1)
    down = torch.stack((sine * width / height, cosine), dim=-1)
    inverse = torch.stack((across, down), dim=-2) / scale[:, None, None]
    start = -inverse @ (2 * shift[:, :, None])
    grid = F.affine_grid(torch.cat((inverse, start), dim=-1).to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode=_PADDING[border], align_corners=False)


def erase(
    images: Float[Tensor, "rows channels height width"], share: float, generator: np.random.Generator
) -> Float[Tensor, "rows channels height width"]:
    """Random erasing (Zhong et al. 2020): of a ``share`` of normalized images, a rectangle becomes 0, the mean."""
    rows, _, height, width = images.shape
    area = generator.uniform(*_ERASED_AREA, rows)
    ratio = np.exp(generator.uniform(-math.log(_ERASED_RATIO), math.log(_ERASED_RATIO), rows))
    sides = np.stack((np.sqrt(area * ratio), np.sqrt(area / ratio))).clip(max=1)  # shares of height and of width
    first = generator.random((2, rows)) * (1 - sides)
    erased = generator.random(rows) < share

    def inside(axis: int, length: int) -> Tensor:
        centers = (np.arange(length) + 0.5) / length
        low, high = first[axis, :, None], (first + sides)[axis, :, None]
        return torch.from_numpy((low <= centers) & (centers < high))

    blank = inside(0, height)[:, :, None] & inside(1, width)[:, None, :] & torch.from_numpy(erased)[:, None, None]
    return images.masked_fill(blank[:, None], 0.0)


def mix(
    images: Float[Tensor, "rows channels height width"],
    labels: Int64[Tensor, " rows"],
    n_classes: int,
    alpha: float,
    generator: np.random.Generator,
) -> tuple[Float[Tensor, "rows channels height width"], Float[Tensor, "rows classes"]]:
    """Mixup (Zhang et al. 2018): each image and its label, averaged with another's; labels become probabilities."""
    other = torch.from_numpy(generator.permutation(len(images)))
    share = torch.from_numpy(generator.beta(alpha, alpha, len(images))).to(images.dtype)
    targets = F.one_hot(labels, n_classes).to(images.dtype)
    return (
        torch.lerp(images[other], images, share[:, None, None, None]),
        torch.lerp(targets[other], targets, share[:, None]),
    )
