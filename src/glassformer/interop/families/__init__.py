"""Table of model families, and the reasons why related model types are missing."""

from operator import attrgetter
from typing import Any

from glassformer.errors import ConfigError
from glassformer.interop.families.bert import BARE_BERT, BERT_CLASSIFIER, BERT_TAGGER, MASKED_BERT
from glassformer.interop.families.gpt2 import GPT2
from glassformer.interop.families.learned_positions import BART, BLENDERBOT, M2M_100, MBART, PLBART
from glassformer.interop.families.llama import LLAMA, MISTRAL
from glassformer.interop.families.sinusoidal import MARIAN, PEGASUS
from glassformer.interop.families.vit import VIT
from glassformer.interop.table import Family

_TRANSLATORS = (MARIAN, PEGASUS, BLENDERBOT, M2M_100, BART, MBART, PLBART)
_ALL = (*_TRANSLATORS, GPT2, LLAMA, MISTRAL, MASKED_BERT, BERT_CLASSIFIER, BERT_TAGGER, BARE_BERT, VIT)
FAMILIES = {family.architecture: family for family in _ALL}

KINDS = list(dict.fromkeys(str(family.our_values["kind"]) for family in _ALL if family.exported))
"""Kinds of our models that can be exported."""

WITHOUT_COUNTERPART = {
    "blenderbot-small": "layernorm_embedding before the decoder's positions are added, which encoder_decoder lacks",
    "fsmt": "sinusoids of tensor2tensor in a post-norm model, which encoder_decoder lacks",
    "t5": "relative_attention_num_buckets: biases of relative positions, which encoder_decoder lacks",
    "qwen2": "biases in some of its projections, where gpt has them in all or in none",
    "roberta": "position_ids that begin behind the padding's, which bert lacks",
}


def family_of(their_config: dict[str, Any], origin: str) -> Family:
    """The family of their ``config.json``; ``ConfigError`` gives the reason, or lists the known families."""
    model_type, classes = their_config.get("model_type"), their_config.get("architectures")
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
    """The family for the export of one of our models; ``ConfigError`` names the setting that no family has."""
    exported = [family for family in FAMILIES.values() if family.exported and family.our_values["kind"] == config.kind]
    if not exported:
        raise ConfigError(
            f"model.kind={config.kind!r} is not exported; only {', '.join(KINDS)} are; use the run itself"
        )
    of_task = [family for family in exported if family.task == task]
    if not of_task:
        raise ConfigError(f"task={task!r} is not exported; {', '.join(family.task for family in exported)} are")
    values = {name: attrgetter(name)(config) for family in of_task for name in family.our_values}
    for family in of_task:
        if all(family.accepts(name, values[name]) for name in family.our_values):
            return family
    nearest = max(of_task, key=lambda family: sum(family.accepts(name, values[name]) for name in family.our_values))
    name = next(name for name in nearest.our_values if not nearest.accepts(name, values[name]))
    others = ", ".join(f"{name}={value}" for name, value in values.items() if name != "kind")
    remedy = "export to ctranslate2 or onnx" if config.kind == "encoder_decoder" else f"a {nearest.model_type} has "
    if config.kind != "encoder_decoder":
        remedy += ", ".join(f"{name}={_one_of(value)}" for name, value in nearest.our_values.items() if name != "kind")
    raise ConfigError(f"model.{name}={values[name]!r}: no model of Hugging Face has {others}; {remedy}")


def _one_of(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _choose() -> str:
    return f"choose a model of {', '.join(sorted({family.model_type for family in FAMILIES.values()}))}"
