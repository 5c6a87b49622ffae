"""From a configuration to a run that can take its first step: tokenizers, data, model, optimizer."""

from collections.abc import Iterator
from functools import partial

import torch

from glassformer.config import ConfigError
from glassformer.data import Account, Batches, prepare, read_texts
from glassformer.data.preparation import CHARACTERS_PER_TOKEN
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.precision import fast_in_bfloat16, lower_stacks
from glassformer.text import TokenizerPair, train_tokenizers
from glassformer.train.config import RunConfig
from glassformer.train.optimizer import build_optimizer
from glassformer.train.state import TrainState


def build(config: RunConfig, tokenizers: TokenizerPair | None = None) -> tuple[TrainState, list[Account]]:
    """Everything before step 0, and the account of every line read. Tokenizers are trained when none are given."""
    device = choose_device(config.train.device)
    # Also when the number stays what it is: setting it fixes how MKL cuts its sums, and a resumed run must agree.
    torch.set_num_threads(config.train.threads or torch.get_num_threads())
    torch.manual_seed(config.train.seed)
    if tokenizers is None:
        tokenizers = train_tokenizers(config.text, *(partial(_texts, config, side) for side in ("source", "target")))
    corpora = [prepare(config.data, [path], tokenizers) for path in config.data.train]
    for corpus in corpora:
        corpus.account.check_unknown(config.text)
    batches = Batches(
        corpora,
        tokenizers,
        config.data.batch_tokens,
        config.train.seed,
        config.data.weights,
        config.text.bpe_dropout,
        config.data.bucket_noise,
        config.data.row_tokens,
    )
    model = EncoderDecoder(with_vocabulary(config.model, tokenizers)).to(device)
    optimizer = build_optimizer(config.optimizer, model)
    low = config.train.precision == "bfloat16" and fast_in_bfloat16(device)
    working = lower_stacks(model, torch.bfloat16) if low else model
    state = TrainState(config, tokenizers, model, optimizer, batches, working)
    if config.train.ema:
        state.start_average()
    return state, [corpus.account for corpus in corpora]


def with_vocabulary(config: EncoderDecoderConfig, tokenizers: TokenizerPair) -> EncoderDecoderConfig:
    """The model's configuration with the vocabulary that the tokenizers really have."""
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    actual = sizes if tokenizers.source is not tokenizers.target else sizes[0]
    if config.vocab_size not in (None, actual):
        raise ConfigError(
            f"model.vocab_size={config.vocab_size}, but the tokenizer has {actual} entries; leave model.vocab_size out"
        )
    return EncoderDecoderConfig.parse({**config.model_dump(), "vocab_size": actual}, "model")


def choose_device(name: str) -> torch.device:
    """``auto`` is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"train.device={name!r} is not a device; choose auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"train.device={name!r}, but PyTorch finds no GPU here; choose auto or cpu")
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise ConfigError(f"train.device={name!r} is not a device that can be used here; choose auto, cpu or cuda")
    return device


def _texts(config: RunConfig, side: str) -> Iterator[str]:
    """Lines that will be dropped as too long teach no vocabulary: a word of a million letters would take minutes."""
    longest = CHARACTERS_PER_TOKEN * config.data.max_length
    texts = read_texts(config.data, "source" if side == "source" else "target")
    return (text for text in texts if len(text) <= longest)
