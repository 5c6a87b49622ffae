"""Which images are read, and how the training ones are varied."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassformer.config import Config
from glassformer.data.held_out import check_one_validation


class AugmentConfig(Config):
    """What may happen to a training image, drawn anew each epoch. Everything at 0 leaves every bit as it is."""

    rotation: float = Field(0.0, ge=0, le=180, description="degrees either way, at most")
    shift: float = Field(0.0, ge=0, le=1, description="share of the width and of the height either way, at most")
    scale: float = Field(0.0, ge=0, lt=1)
    """The factor of enlargement lies between ``1 - scale`` and ``1 + scale``."""
    shear: float = Field(0.0, ge=0, lt=90, description="degrees that upright lines lean either way, at most")
    border: Literal["edge", "black", "mirror"] = Field("edge", description="what is seen beyond the border")
    flip: float = Field(0.0, ge=0, le=1, description="share of images seen in a mirror, left to right")
    erase: float = Field(0.0, ge=0, le=1)
    """Share of images of which a rectangle is blanked with the mean color (Zhong et al. 2020, arXiv:1708.04896)."""
    mixup: float = Field(0.0, ge=0)
    """Each image is mixed with another by a share from Beta(mixup, mixup), labels alike (Zhang et al. 2018,
    arXiv:1710.09412); 0 does not mix."""

    @property
    def moves(self) -> bool:
        """Whether pixels change their places other than by ``flip``."""
        return bool(self.rotation or self.shift or self.scale or self.shear)


class ImageConfig(Config):
    """Where labeled images lie and what becomes of them.

    Every path is one of: a prefix ``P`` of IDX files (``P-images-idx3-ubyte``, ``P-labels-idx1-ubyte``, each also
    ``.gz``) or the file of images itself; a ``.npz`` of the arrays ``images`` and ``labels``; a ``.npy`` of images with
    ``images`` in its name, its labels beside it; a folder of one folder a class, with PNG and JPEG files in it.

    Arrays are not resized. Of a picture file, the largest centered part of the proportions of ``image_size`` is scaled
    to it (bicubic), the right way up as its EXIF data say, transparency ignored.
    """

    train: list[str] = Field(min_length=1, description="paths")
    validation: list[str] = Field(default=[], description="paths")
    test: list[str] = Field(default=[])
    """Paths, which training only checks: what ``glassformer evaluate RUN`` measures on."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of every class of the training images that is held out for validation when no path is given for it."""
    split_seed: int = Field(1, ge=0, lt=2**63, description="draws which images are held out")
    image_size: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]] | None = None
    """Height and width in pixels; none: those that all images have."""
    channels: Literal[1, 3] | None = None
    """1 is gray, 3 is red, green, blue; none: those of an array, 3 for picture files."""
    batch_size: int = Field(256, gt=0, description="images in a batch, at most")
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def _one_validation(self) -> Self:
        check_one_validation(self.validation, self.validation_share)
        return self
