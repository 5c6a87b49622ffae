"""Size of a model: parameters by part, memory, operations per token."""

from torch import nn

from glassformer.models.bert import BERT
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Each parameter counted once, where it is first used; ``total`` is their sum."""
    counted: set[int] = set()
    parts: dict[str, int] = {}
    for name, part in model.named_children():
        if held := {id(p): p.numel() for p in part.parameters()}:
            parts[name] = sum(size for p, size in held.items() if p not in counted)
            counted.update(held)
    return {**parts, "total": sum(parts.values())}


def summary(name: str, model: nn.Module, *details: object) -> str:
    """One-line representation of an object: ``<Generator: gpt, 1,234 parameters, …>``."""
    kind = getattr(getattr(model, "config", None), "kind", type(model).__name__)
    total = parameters_by_part(model)["total"]
    parts = [str(kind), f"{total:,} parameters", *(str(detail) for detail in details if detail)]
    return f"<{name}: {', '.join(parts)}>"


def flops_per_token(model: nn.Module) -> dict[str, int]:
    """Matrix products of a forward pass, a multiplication and an addition counted as two; nothing for models that
    neither read nor write one token at a time.

    Products with weights only: those of attention itself grow with the length, and are a few percent at 30 tokens.
    The keys and values of the encoder–decoder attention are computed from the source, so they count there.
    """
    if isinstance(model, GPT):
        return {"target_token": _products(model.decoder, ("",)) + 2 * model.output_projection.weight.numel()}
    if isinstance(model, BERT):
        return {"source_token": _products(model.encoder, ("",))}
    if not isinstance(model, EncoderDecoder):
        return {}
    of_memory = _products(model.decoder, ("cross_attention.key", "cross_attention.value"))
    of_target = _products(model.decoder, ("",)) - of_memory + 2 * model.output_projection.weight.numel()
    return {"source_token": _products(model.encoder, ("",)) + of_memory, "target_token": of_target}


def _products(module: nn.Module, endings: tuple[str, ...]) -> int:
    return sum(
        2 * part.weight.numel()
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear) and name.endswith(endings)
    )
