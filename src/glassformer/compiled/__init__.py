"""The step of decoding as one call: a compiled form of the encoder–decoder, in float32 or with eight-bit products."""

from glassformer.compiled.model import CompiledModel, faster, why_not

__all__ = ["CompiledModel", "faster", "why_not"]
