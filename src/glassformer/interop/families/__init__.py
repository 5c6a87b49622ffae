"""The one table of families: a file each, and why the nearest others have none."""

from operator import attrgetter
from typing import Any

from glassformer.errors import ConfigError
from glassformer.interop.families.bart import BART, MBART, PLBART
from glassformer.interop.families.bert import ALONE, CLASSES, MASKED, TAGS
from glassformer.interop.families.blenderbot import BLENDERBOT
from glassformer.interop.families.gpt2 import GPT2
from glassformer.interop.families.llama import LLAMA, MISTRAL
from glassformer.interop.families.m2m_100 import M2M_100
from glassformer.interop.families.marian import MARIAN
from glassformer.interop.families.pegasus import PEGASUS
from glassformer.interop.families.vit import VIT
from glassformer.interop.table import Family

_TRANSLATORS = (MARIAN, PEGASUS, BLENDERBOT, M2M_100, BART, MBART, PLBART)
_ALL = (*_TRANSLATORS, GPT2, LLAMA, MISTRAL, MASKED, CLASSES, TAGS, ALONE, VIT)
FAMILIES = {family.architecture: family for family in _ALL}

KINDS = list(dict.fromkeys(str(family.our_values["kind"]) for family in _ALL if family.exported))
"""Of our models, those that are exported."""

WITHOUT_COUNTERPART = {
    "blenderbot-small": "layernorm_embedding before the decoder's positions are added, which encoder_decoder lacks",
    "fsmt": "sinusoids of tensor2tensor in a post-norm model, which encoder_decoder lacks",
    "t5": "relative_attention_num_buckets: biases of relative positions, which encoder_decoder lacks",
    "qwen2": "biases in some of its projections, where gpt has them in all or in none",
    "roberta": "position_ids that begin behind the padding's, which bert lacks",
}


def family_of(theirs: dict[str, Any], origin: str) -> Family:
    """By their ``config.json``; ``ConfigError`` lists the known ones, or says what stands in the way of this one."""
    model_type, classes = theirs.get("model_type"), theirs.get("architectures")
    if model_type in WITHOUT_COUNTERPART:
        raise ConfigError(f"{origin}: model_type={model_type!r} has {WITHOUT_COUNTERPART[model_type]}; {_choose()}")
    known = [family for family in FAMILIES.values() if family.model_type == model_type]
    if not known:
        raise ConfigError(f"{origin}: model_type={model_type!r} cannot be imported; {_choose()}")
    if not classes:
        return known[0]
    for family in known:
        if {family.architecture, *family.other_architectures} & set(classes):
            return family
    names = ", ".join(family.architecture for family in known)
    raise ConfigError(
        f"{origin}: architectures={classes} cannot be imported, only {names}; choose a model that was trained as one "
        "of these (loading it as another class initializes missing weights at random)"
    )


def family_for(config: Any, task: str) -> Family:
    """The family that a model of ours is exported to; ``ConfigError`` names the setting that none has."""
    exported = [family for family in FAMILIES.values() if family.exported and family.our_values["kind"] == config.kind]
    if not exported:
        raise ConfigError(
            f"model.kind={config.kind!r} is not exported; only {', '.join(KINDS)} are; use the run itself"
        )
    of_task = [family for family in exported if family.task == task]
    if not of_task:
        raise ConfigError(f"task={task!r} is not exported; {', '.join(family.task for family in exported)} are")
    said = {name: attrgetter(name)(config) for family in of_task for name in family.our_values}
    for family in of_task:
        if all(family.holds(name, said[name]) for name in family.our_values):
            return family
    nearest = max(of_task, key=lambda family: sum(family.holds(name, said[name]) for name in family.our_values))
    name = next(name for name in nearest.our_values if not nearest.holds(name, said[name]))
    others = ", ".join(f"{name}={value}" for name, value in said.items() if name != "kind")
    way = "export to ctranslate2 or onnx" if config.kind == "encoder_decoder" else f"a {nearest.model_type} has "
    if config.kind != "encoder_decoder":
        way += ", ".join(f"{name}={_one_of(value)}" for name, value in nearest.our_values.items() if name != "kind")
    raise ConfigError(f"model.{name}={said[name]!r}: no model of Hugging Face has {others}; {way}")


def _one_of(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _choose() -> str:
    return f"choose a model of {', '.join(sorted({family.model_type for family in FAMILIES.values()}))}"
