"""How large a model is: parameters by part, memory, and the arithmetic of a token."""

from torch import nn

from glassformer.models.encoder_decoder import EncoderDecoder


def parameters_by_part(model: EncoderDecoder) -> dict[str, int]:
    """Each parameter counted once, where it is first used; ``total`` is their sum."""
    counted: set[int] = set()
    parts: dict[str, int] = {}
    named = {
        "source_embedding": model.source_embedding,
        "target_embedding": model.target_embedding,
        "encoder": model.encoder,
        "decoder": model.decoder,
        "output_projection": model.output_projection,
    }
    for name, part in named.items():
        own = [p for p in part.parameters() if id(p) not in counted]
        counted.update(map(id, own))
        parts[name] = sum(p.numel() for p in own)
    return {**parts, "total": sum(parts.values())}


def flops_per_token(model: EncoderDecoder) -> dict[str, int]:
    """Matrix products of a forward pass, a multiplication and an addition counted as two.

    Products with weights only: those of attention itself grow with the length, and are a few per cent at 30 tokens.
    The keys and values of the encoder–decoder attention are computed from the source, so they count there.
    """
    of_memory = _products(model.decoder, ("cross_attention.key", "cross_attention.value"))
    of_target = _products(model.decoder, ("",)) - of_memory + 2 * model.output_projection.weight.numel()
    return {"source_token": _products(model.encoder, ("",)) + of_memory, "target_token": of_target}


def _products(module: nn.Module, endings: tuple[str, ...]) -> int:
    return sum(
        2 * part.weight.numel()
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear) and name.endswith(endings)
    )
