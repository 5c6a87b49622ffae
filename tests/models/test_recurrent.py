"""The recurrent baseline: what it reads, what it may not read, and that the Transformer's searches decode it."""

import copy
from itertools import chain

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.errors import ConfigError
from glassformer.generate import DecodingConfig, Hypothesis, SpecialTokens, generate, score_pairs
from glassformer.layers.dropout import has_active_dropout
from glassformer.models.recurrent import Recurrent, RecurrentConfig
from glassformer.models.registry import load_weights, weights_of
from glassformer.taps import record

PAD, LENGTHS, TARGET_LENGTHS = 0, [6, 3, 1], [2, 5, 4]
SOURCES = [[5, 2], [3, 8, 7, 4, 6, 5, 2], [4, 4, 2], [7, 8, 3, 2], [6, 2], [3, 8, 7, 4, 6, 5, 2], [8, 5, 3, 6, 2]]
SYMBOLS = SpecialTokens(pad=0, start=1, end=2)
SHAPES = [
    {},
    {"n_encoder_layers": 1, "n_decoder_layers": 1},
    {"n_decoder_layers": 3, "n_heads": 2, "output_bias": True},
]


def make(seed: int = 0, **values: object) -> Recurrent:
    """Small, in float64 and evaluation mode; biases other than 0, so that none can be forgotten."""
    torch.manual_seed(seed)
    small = {"vocab_size": 12, "d_model": 10, "d_hidden": 16, "dropout": 0.0}
    model = Recurrent(RecurrentConfig.parse({**small, **values}))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.2)
    return model.double().eval()


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source, target = torch.randint(3, 12, (3, 6)), torch.randint(3, 12, (3, 5))
    seen = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    target_seen = torch.arange(5) < torch.tensor(TARGET_LENGTHS)[:, None]
    return source.masked_fill(~seen, PAD), target.masked_fill(~target_seen, PAD), seen, target_seen


def test_the_encoder_is_a_bidirectional_lstm_over_packed_sentences() -> None:
    model, seen = make(), torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    reference = nn.LSTM(10, 8, 2, batch_first=True, bidirectional=True).double()
    for layer in range(2):
        for ours, suffix in ((model.encoder.rightward, ""), (model.encoder.leftward, "_reverse")):
            for name, parameter in ours[layer].named_parameters():
                getattr(reference, f"{name.replace('l0', f'l{layer}')}{suffix}").data = parameter.data
    x = torch.randn(3, 6, 10, dtype=torch.float64)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(reference(packed)[0], batch_first=True)
    found = model.encoder(x, seen)
    torch.testing.assert_close(found[seen], expected[seen], atol=1e-12, rtol=1e-12)
    assert found[~seen].isfinite().all()


def test_recurrent_decoder_equals_its_equations() -> None:
    """The start from the leftward state, the context in the layers above and in what the softmax reads."""
    model, (source, target, *_) = make(), batch()
    state = model.begin(source, None)
    decoder, memory, x = model.decoder, state.memory, model.target_embedding(target)
    attention = decoder.cross_attention
    h = list(torch.tanh(decoder.start(memory[:, 0, 8:])).chunk(2, dim=-1))
    c = [torch.zeros_like(one) for one in h]
    for step in range(target.size(1)):
        h[0], c[0] = torch.lstm_cell(x[:, step], (h[0], c[0]), *decoder.layers[0].parameters())
        scores = (attention.query(h[0])[:, None] * attention.key(memory)).sum(-1) / 16**0.5
        context = attention.output((scores.softmax(-1)[..., None] * attention.value(memory)).sum(1))
        above = torch.cat([context, h[0]], dim=-1)
        h[1], c[1] = torch.lstm_cell(above, (h[1], c[1]), *decoder.layers[1].parameters())
        read = torch.tanh(decoder.combine(torch.cat([context, h[1]], dim=-1)))
        found = model.step(target[:, step, None], state)
        torch.testing.assert_close(found, read @ model.source_embedding.weight.T, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("values", SHAPES)
def test_a_padded_batch_equals_its_sentences_alone(values: dict[str, object]) -> None:
    model, (source, target, seen, target_seen) = make(**values), batch()
    together = model(source, target, seen, target_seen)
    for row, (length, target_length) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = model(source[row : row + 1, :length], target[row : row + 1, :target_length])
        torch.testing.assert_close(together[row, :target_length], alone[0], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("poison", [float("nan"), 1e30])
def test_poisoned_padding_changes_no_bit_of_outputs_or_gradients(poison: float) -> None:
    model, (source, target, seen, target_seen) = make(tie_embeddings=False), batch()

    def run(source: Tensor, target: Tensor) -> list[Tensor]:
        model.zero_grad()
        logits = model(source, target, seen, target_seen)[target_seen]
        logits.sin().sum().backward()
        return [logits.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    clean = run(source, target)
    assert all(tensor.isfinite().all() and tensor.any() for tensor in clean)
    with torch.no_grad():
        model.source_embedding.weight[PAD] = poison
        model.target_embedding.weight[PAD] = poison
    others = source.masked_fill(~seen, 7), target.masked_fill(~target_seen, 9)
    for ids in ((source, target), others):
        for one, other in zip(clean, run(*ids), strict=True):
            assert torch.equal(one, other)


def test_predictions_depend_on_the_prefix_and_the_full_source() -> None:
    model, source, target = make(), torch.randint(3, 11, (2, 6)), torch.randint(3, 11, (2, 7))
    before = model(source, target)
    for place in range(7):
        changed = target.clone()
        changed[:, place] += 1
        after = model(source, changed)
        assert torch.equal(before[:, :place], after[:, :place])
        assert (before[:, place:] != after[:, place:]).any(-1).all()
    for place in range(6):
        changed = source.clone()
        changed[:, place] += 1
        assert (before != model(changed, target)).any(-1).all()


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("values", SHAPES)
def test_steps_equal_teacher_forcing(values: dict[str, object], use_cache: bool) -> None:
    """Two hypotheses a sentence, some steps of several tokens, sentences that leave and rows that change places."""
    model, (source, _, seen, _) = make(**values), batch()
    target = torch.randint(3, 12, (6, 7))
    expected = model(source.repeat_interleave(2, 0), target, seen.repeat_interleave(2, 0))
    state = model.begin(source, seen, use_cache)
    rows, done = torch.arange(6), 0
    for until, sentences, kept in (
        (1, [0, 1, 2], [1, 0, 2, 3, 5, 5]),
        (3, [0, 1, 2], [0, 1, 2, 3, 4, 4]),
        (4, [2, 0], [5, 4, 0, 1]),
        (7, [0, 1], [0, 1, 2, 3]),
    ):
        found = model.step(target[rows, done:until], state)
        torch.testing.assert_close(found, expected[rows, until - 1], atol=1e-12, rtol=1e-12)
        state.select_sentences(torch.tensor(sentences))
        state.select(torch.tensor(kept))
        rows, done = rows[torch.tensor(kept)], until


def same(one: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> None:
    assert [[h.tokens for h in hypotheses] for hypotheses in one] == [[h.tokens for h in hs] for hs in other]
    for first, second in zip(chain(*one), chain(*other), strict=True):
        assert first.token_log_probs == pytest.approx(second.token_log_probs, abs=1e-10)


def make_peaked() -> Recurrent:
    """Sentences end at different steps."""
    model = make(3, vocab_size=9, tie_embeddings=False, output_bias=True)
    with torch.no_grad():
        model.output_projection.weight *= 8
        model.output_projection.bias[SYMBOLS.end] = -3
    return model


@pytest.mark.parametrize("search", [{"beam_size": 1}, {"beam_size": 4, "n_best": 2}, {"sample": True}], ids=str)
def test_search_results_do_not_depend_on_the_batch_of_sentences(search: dict[str, object]) -> None:
    model, config = make_peaked(), DecodingConfig.parse({"max_extra": 6, **search})
    alone = [generate(model, [source], SYMBOLS, config)[0] for source in SOURCES]
    assert len({len(h.tokens) for hypotheses in alone for h in hypotheses}) > 2
    for values in ({"batch_tokens": 13}, {}, {"use_cache": False}):
        same(generate(model, SOURCES, SYMBOLS, config.model_copy(update=values)), alone)


def test_forced_score_equals_the_score_of_the_search() -> None:
    model, config = make_peaked(), DecodingConfig(max_extra=6)
    found = generate(model, SOURCES, SYMBOLS, config)
    scored = score_pairs(model, SOURCES, [hypotheses[0].tokens for hypotheses in found], SYMBOLS, config)
    same([[hypothesis] for hypothesis in scored], found)


def test_trace_records_attention_without_changing_results() -> None:
    model, (source, target, seen, target_seen) = make(n_heads=2), batch()
    expected = model(source, target, seen, target_seen)
    with record(model) as recorded:
        torch.testing.assert_close(model(source, target, seen, target_seen), expected, atol=1e-12, rtol=1e-12)
    weights = recorded["decoder.cross_attention.weights"]
    assert weights.shape == (3, 2, 5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 5, dtype=torch.float64))
    assert not weights[~seen[:, None, None].expand_as(weights)].any()
    assert {"memory", "encoder.states_1", "decoder.states_1", "decoder.combined", "source_embedding.tokens"} <= {
        *recorded
    }


def test_rows_of_several_sentences_are_refused() -> None:
    model, (source, target, seen, target_seen) = make(), batch()
    numbered = model(source, target, seen.long(), target_seen.long())  # one sentence a row
    assert torch.equal(numbered, model(source, target, seen, target_seen))
    for mask in (torch.tensor([[1, 1, 0], [1, 2, 2]]), torch.tensor([[True, True, False], [False, True, True]])):
        ids = torch.full((2, 3), 5)
        for masks in ((mask, None), (None, mask)):
            with pytest.raises(ConfigError, match=r"row 1 .* set data.row_tokens=0"):
                model(ids, ids, *masks)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_hidden": 15}, "d_hidden=15 is not a multiple of 2"),
        ({"n_heads": 3}, "n_heads=3; choose"),
        ({"vocab_size": (12, 13)}, "tie_embeddings=true needs one vocabulary"),
        ({"vocab_size": 0}, "greater than 0"),
        ({"n_head": 3}, "did you mean n_heads"),
    ],
)
def test_invalid_settings_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**values)


def test_weights_are_restored_by_their_unique_names() -> None:
    model, other = make(), make(1)
    tied, untied = weights_of(model), weights_of(make(tie_embeddings=False, vocab_size=(12, 13)))
    assert {"target_embedding.weight", "output_projection.weight"} == untied.keys() - tied.keys()
    assert len({tensor.data_ptr() for tensor in tied.values()}) == len(tied)
    source, target, *masks = batch()
    assert not torch.equal(model(source, target, *masks), other(source, target, *masks))
    load_weights(other, tied, "test")
    copied = copy.deepcopy(model).requires_grad_(False)
    for same in (other, copied):
        torch.testing.assert_close(model(source, target, *masks), same(source, target, *masks), atol=1e-12, rtol=1e-12)


def test_dropout_is_between_layers_and_only_while_training() -> None:
    model, (source, target, *masks) = make(dropout=0.5).float(), batch()
    assert not has_active_dropout(model)
    assert torch.equal(model(source, target, *masks), model(source, target, *masks))
    assert has_active_dropout(model.train())
    first, second = model(source, target, *masks), model(source, target, *masks)
    assert first.isfinite().all()
    assert not torch.equal(first, second)


def test_recurrent_model_learns_to_reverse_sentences() -> None:
    """The first word of the answer is the last that was read, and lengths differ."""
    model = make(vocab_size=10, d_model=24, d_hidden=48).float().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(120):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 - step / 120)
        words = torch.randint(3, 10, (64, 5))
        lengths = torch.randint(1, 6, (64, 1))
        place, ends = torch.arange(6), torch.full((64, 1), SYMBOLS.end)
        seen = place <= lengths
        source = torch.cat([words, ends], 1).where(place != lengths, SYMBOLS.end)
        target_values = words.gather(1, (lengths - 1 - place[:5]).clamp(min=0))
        target_values = torch.cat([target_values, ends], 1).where(place < lengths, SYMBOLS.end)
        target = torch.cat([torch.full((64, 1), SYMBOLS.start), target_values[:, :-1]], 1)
        logits = model(source, target, seen, seen)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits[seen], target_values[seen]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    sources = [[3, 4, 5, 2], [9, 8, 7, 6, 2], [5, 5, 6, 7, 8, 2], [7, 2]]
    found = generate(model.eval(), sources, SYMBOLS, DecodingConfig())
    assert [hypotheses[0].tokens for hypotheses in found] == [source[-2::-1] for source in sources]
