"""How text is cut and masked for a masked language model."""

from typing import Self

from pydantic import Field, model_validator

from glassformer.data.token_stream_config import DocumentsConfig


class MaskedConfig(DocumentsConfig):
    """Text for a masked language model (Devlin et al. 2019, section 3.1): hidden tokens are predicted from the rest."""

    max_length: int = Field(default=128, ge=3)
    """Tokens a sequence, ``[CLS]`` and ``[SEP]`` included; a longer document is cut into equal parts."""
    batch_tokens: int = Field(default=8192, ge=3, description="padded tokens in a batch, at most")
    bucket_noise: float = Field(default=0.02, ge=0, le=1, description="blur of lengths before sorting")
    masked_share: float = Field(default=0.15, gt=0, le=1, description="tokens that are predicted")
    mask_token_share: float = Field(default=0.8, ge=0, le=1, description="of those, seen as [MASK]")
    random_token_share: float = Field(default=0.1, ge=0, le=1)
    """Of those, seen as another token drawn at random; what is left is seen as it is."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> Self:
        if (share := self.mask_token_share + self.random_token_share) > 1 + 1e-9:
            raise ValueError(
                f"mask_token_share and random_token_share are {share:g} together, more than 1; lower one of them"
            )
        return self

    @model_validator(mode="after")
    def _sequence_fits(self) -> Self:
        if self.max_length > self.batch_tokens:
            raise ValueError(
                f"a sequence of max_length={self.max_length} does not fit batch_tokens={self.batch_tokens}; "
                f"raise it to {self.max_length} or lower max_length"
            )
        return self
