"""Sentence encoders in sentence-transformers format: import, pooling, fine-tuning and export."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import glassformer
from glassformer.errors import CheckpointError, ConfigError, GlassformerError
from glassformer.interop.folder import SETTINGS_FILE
from glassformer.interop.huggingface import export_folder, import_folder
from glassformer.interop.transformers_api import transformers
from glassformer.models.registry import MODELS
from glassformer.predict.encoder import Encoder
from glassformer.predict.filler import Filler
from glassformer.predict.labeling import Classifier
from glassformer.storage.checkpoint import load_checkpoint
from glassformer.train import parse_config
from interop.small_checkpoint import LINES
from interop.small_folders import folder
from tiny_run import run_to_the_end, write_lines

TEXTS = [*LINES[:4], "", "a", "A dog runs.", "a dog runs. " * 20]
"""Texts without names of special tokens, which are text here and tokens in transformers."""
FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
OLD = "sentence_transformers.models."


def sentence_folder(path: Path, pooling: Any = "mean", normalize: bool = True, max_length: int = 16) -> Path:
    """Write a folder in the current format, or, if ``pooling`` is a list, in the old one with flags."""
    folder(path, "BertModel")
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")][: 2 + normalize]
    write(
        path / "modules.json",
        [
            {"idx": i, "name": str(i), "path": subfolder, "type": OLD + kind}
            for i, (kind, subfolder) in enumerate(steps)
        ],
    )
    settings = {"pooling_mode": pooling}
    if isinstance(pooling, list):
        settings = {flag: kind in pooling for kind, flag in FLAGS.items()}
    write(path / "1_Pooling" / "config.json", {"word_embedding_dimension": 24, **settings})
    write(path / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    return path


def write(path: Path, document: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@torch.inference_mode()
def reference(path: Path, pooling: str, normalize: bool, max_length: int = 16) -> torch.Tensor:
    """Vectors by transformers and the documented pooling formulas, one text at a time."""
    model = transformers.AutoModel.from_pretrained(path).eval()
    reader = transformers.AutoTokenizer.from_pretrained(path)
    rows = []
    for text in TEXTS:
        inputs = reader(text, truncation=True, max_length=max_length, return_tensors="pt")
        hidden = model(**inputs).last_hidden_state[0]
        rows.append({"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}[pooling])
    vectors = torch.stack(rows)
    return vectors / vectors.norm(dim=1, keepdim=True) if normalize else vectors


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", ["mean"], ["cls"]])
def test_embed_uses_pooling_and_normalization_of_the_folder(pooling: Any, normalize: bool, tmp_path: Path) -> None:
    theirs = sentence_folder(tmp_path / "theirs", pooling, normalize)
    mode = pooling[0] if isinstance(pooling, list) else pooling
    imported = import_folder(str(theirs), tmp_path / "ours", ["A dog runs!"])
    assert imported.parity.differences["float64"] <= 1e-12
    values = load_checkpoint(tmp_path / "ours").config
    assert (values["task"], values["pooling"], values["normalize"]) == ("embedding", mode, normalize)
    assert values["max_length"] == 16
    encoder = glassformer.load(tmp_path / "ours")
    expected = reference(theirs, mode, normalize)
    assert (encoder.embed(TEXTS) - expected).abs().max() <= 1e-5
    other = reference(theirs, "max", not normalize)
    assert (encoder.embed(TEXTS, pooling="max", normalize=not normalize) - other).abs().max() <= 1e-5
    assert (encoder.embed(TEXTS) - other).abs().max() > 0.1


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_embed_equals_sentence_transformers(pooling: str, normalize: bool, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = sentence_folder(tmp_path / "theirs", pooling, normalize)
    import_folder(str(theirs), tmp_path / "ours")
    again = export_folder(tmp_path / "ours", tmp_path / "again").path
    ours = Encoder.load(tmp_path / "ours").embed(TEXTS)
    for path in (theirs, again):
        found = SentenceTransformer(str(path), device="cpu").encode(TEXTS, convert_to_tensor=True)
        assert (ours - found).abs().max() <= 1e-5


def test_export_writes_the_pooling_configuration(tmp_path: Path) -> None:
    theirs = sentence_folder(tmp_path / "theirs", "cls")
    import_folder(str(theirs), tmp_path / "ours")
    exported = export_folder(tmp_path / "ours", tmp_path / "again")
    assert exported.notes == ["the pooler of BertModel is written as zeros, since this model has none"]
    first, second = (load_file(path / "model.safetensors") for path in (theirs, exported.path))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first if not name.startswith("pooler"))
    kinds = [step["type"].rpartition(".")[2] for step in read(exported.path / "modules.json")]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    assert [kind for kind, flag in FLAGS.items() if read(exported.path / "1_Pooling" / "config.json")[flag]] == ["cls"]
    assert read(exported.path / "sentence_bert_config.json")["max_seq_length"] == 16
    for name in ("back", "bare"):
        import_folder(str(exported.path), tmp_path / name)
        assert load_checkpoint(tmp_path / name).config.items() >= {"pooling": "cls", "normalize": True}.items()
        (exported.path / SETTINGS_FILE).unlink(missing_ok=True)  # like a folder from another tool


def test_import_reads_a_pooling_changed_after_export(tmp_path: Path) -> None:
    import_folder(str(sentence_folder(tmp_path / "theirs", "cls")), tmp_path / "ours")
    exported = export_folder(tmp_path / "ours", tmp_path / "again").path
    write(exported / "1_Pooling" / "config.json", {"pooling_mode": "max"})
    import_folder(str(exported), tmp_path / "back")
    assert Encoder.load(tmp_path / "back").pooling == "max"


def test_plain_bert_is_imported_without_a_head(tmp_path: Path) -> None:
    """The defaults without a pooling configuration are the mean and all positions."""
    theirs = folder(tmp_path / "theirs", "BertModel")
    notes = import_folder(str(theirs), tmp_path / "ours").notes
    assert notes == ["the pooler, which text vectors do not use, is left out"]
    values = load_checkpoint(tmp_path / "ours").config
    assert "pooling" not in values
    assert (values["model"]["masked_tokens"], values["max_length"]) == (False, 60)
    expected = reference(theirs, "mean", False, 60)
    assert (Encoder.load(tmp_path / "ours").embed(TEXTS) - expected).abs().max() <= 1e-5
    assert not (export_folder(tmp_path / "ours", tmp_path / "again").path / "modules.json").exists()


def test_bert_weights_with_a_class_prefix_are_imported(tmp_path: Path) -> None:
    theirs = folder(tmp_path / "theirs", "BertModel")
    weights = load_file(theirs / "model.safetensors")
    prefixed = {f"bert.{name}": weight for name, weight in weights.items()}
    save_file(prefixed, theirs / "model.safetensors", metadata={"format": "pt"})
    import_folder(str(theirs), tmp_path / "ours")
    assert (Encoder.load(tmp_path / "ours").embed(TEXTS) - reference(theirs, "mean", False, 60)).abs().max() <= 1e-5


def test_masked_model_keeps_its_pooling(tmp_path: Path) -> None:
    theirs = sentence_folder(tmp_path / "theirs", "max")
    folder(theirs, "BertForMaskedLM")
    import_folder(str(theirs), tmp_path / "ours")
    assert load_checkpoint(tmp_path / "ours").config["task"] == "masked"
    assert (Encoder.load(tmp_path / "ours").embed(TEXTS) - reference(theirs, "max", True)).abs().max() <= 1e-5
    assert len(Filler.load(tmp_path / "ours").fill(["A [MASK] runs."])[0].blanks) == 1


def test_transformer_in_a_subfolder_is_imported(tmp_path: Path) -> None:
    theirs = sentence_folder(tmp_path / "theirs")
    modules = read(theirs / "modules.json")
    modules[0]["path"] = "0_Transformer"
    (theirs / "0_Transformer").mkdir()
    for path in [path for path in theirs.iterdir() if path.is_file()]:
        path.rename(theirs / "0_Transformer" / path.name)
    write(theirs / "modules.json", modules)
    import_folder(str(theirs), tmp_path / "ours")
    expected = reference(theirs / "0_Transformer", "mean", True)
    assert (Encoder.load(tmp_path / "ours").embed(TEXTS) - expected).abs().max() <= 1e-5


def test_import_disables_truncation_and_padding_of_the_tokenizer(tmp_path: Path) -> None:
    theirs = sentence_folder(tmp_path / "theirs")
    expected = reference(theirs, "mean", True)
    document = read(theirs / "tokenizer.json")
    document["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    padding = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    document["padding"] = {"strategy": {"Fixed": 30}, **padding}
    write(theirs / "tokenizer.json", document)
    import_folder(str(theirs), tmp_path / "ours")
    assert (Encoder.load(tmp_path / "ours").embed(TEXTS) - expected).abs().max() <= 1e-5


def test_import_reports_omitted_prompts(tmp_path: Path) -> None:
    theirs = sentence_folder(tmp_path / "theirs")
    write(theirs / "config_sentence_transformers.json", {"prompts": {"query": "query: ", "document": ""}})
    assert import_folder(str(theirs), tmp_path / "ours").notes[-1] == (
        "left out: prompts (query: 'query: '); prepend them to the texts yourself"
    )


def test_filler_refuses_an_encoder_and_suggests_embed(tmp_path: Path) -> None:
    import_folder(str(folder(tmp_path / "theirs", "BertModel")), tmp_path / "ours")
    with pytest.raises(
        CheckpointError, match=r"task=embedding, .* it has no head, only vectors; use glassformer embed"
    ):
        Filler.load(tmp_path / "ours")


def test_classifier_trains_from_an_imported_encoder(tmp_path: Path) -> None:
    import_folder(str(sentence_folder(tmp_path / "theirs")), tmp_path / "ours")
    lines = ["text\tlabel", "a dog runs\tgood", "a cat in the snow\tbad"] + [
        "a dog runs\tgood",
        "a cat in the snow\tbad",
    ] * 8
    model = {"kind": "bert", "d_model": 24, "d_ff": 20, "n_layers": 2, "n_heads": 4, "max_length": 60, "dropout": 0.0}
    values = {
        "task": "classification",
        "model": model,
        "text": {"max_unknown_rate": 0.5},
        "data": {"train": [write_lines(tmp_path / "train.tsv", lines)], "max_length": 16, "batch_tokens": 128},
        "optimizer": {"kind": "adamw", "schedule": "constant", "learning_rate": 0.003, "warmup_steps": 2},
        "train": {"max_steps": 200, "threads": 1, "start_from": str(tmp_path / "ours")},
    }
    run_to_the_end(parse_config(values, "test"), tmp_path / "run")
    found = Classifier.load(tmp_path / "run").classify(["a dog runs", "a cat in the snow"])
    assert [one.label for one in found] == ["good", "bad"]


def changed(path: Path, name: str, document: Any) -> Path:
    write(path / name, document)
    return path


DENSE = [
    {"path": "", "type": OLD + "Transformer"},
    {"path": "1", "type": OLD + "Pooling"},
    {"path": "2", "type": OLD + "Dense"},
]
OUTSIDE = [{"path": "", "type": OLD + "Transformer"}, {"path": "../other", "type": OLD + "Pooling"}]


@pytest.mark.parametrize(
    ("name", "document", "fragment"),
    [
        ("modules.json", DENSE, "modules.json lists Transformer, Pooling, Dense; only Transformer, Pooling and"),
        ("modules.json", OUTSIDE, "modules.json names '../other', which is not a folder inside"),
        ("modules.json", {"0": "x"}, "modules.json is not a list of modules with type and path"),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "lasttoken"},
            "pooling by lasttoken is not imported; choose a model",
        ),
        (
            "1_Pooling/config.json",
            dict.fromkeys(FLAGS.values(), True),
            "pooling by mean and cls and max is not imported",
        ),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name='token_embeddings'"),
        ("sentence_bert_config.json", {"max_seq_length": 1}, "maximum length 1 is invalid"),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, "maximum length 'long' is invalid"),
    ],
)
def test_import_refuses_unsupported_modules(name: str, document: Any, fragment: str, tmp_path: Path) -> None:
    theirs = changed(sentence_folder(tmp_path / "theirs"), name, document)
    with pytest.raises(GlassformerError) as caught:
        import_folder(str(theirs), tmp_path / "ours")
    assert fragment in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_import_refuses_do_lower_case_with_a_cased_tokenizer(tmp_path: Path) -> None:
    limits = {"max_seq_length": 16, "do_lower_case": True}
    theirs = changed(sentence_folder(tmp_path / "theirs"), "sentence_bert_config.json", limits)
    import_folder(str(theirs), tmp_path / "ours")  # this tokenizer lower-cases
    document = read(theirs / "tokenizer.json")
    document["normalizer"]["lowercase"] = False
    write(theirs / "tokenizer.json", document)
    with pytest.raises(ConfigError, match="do_lower_case=true, but the tokenizer is case-sensitive"):
        import_folder(str(theirs), tmp_path / "other")


def test_import_refuses_another_head_and_suggests_supported_classes(tmp_path: Path) -> None:
    theirs = folder(tmp_path / "theirs", "BertForQuestionAnswering")
    with pytest.raises(ConfigError, match="initializes missing weights at random") as caught:
        import_folder(str(theirs), tmp_path / "ours")
    assert "BertModel" in str(caught.value)


def test_pooling_does_not_depend_on_the_batch() -> None:
    """A vector does not depend on the other texts in the batch, for every pooling."""
    config, bert = MODELS["bert"]
    torch.manual_seed(1)
    sizes = {"vocab_size": 30, "d_model": 12, "n_heads": 2, "d_ff": 8, "n_layers": 1, "max_length": 9}
    model = bert(config.parse({"kind": "bert", **sizes}, "test")).eval()
    tokens = torch.randint(1, 30, (2, 9))
    mask = torch.arange(9) < torch.tensor([[9], [4]])
    for pooling in ("mean", "cls", "max"):
        together = model.embed(tokens, mask, pooling=pooling)
        alone = model.embed(tokens[1:, :4], pooling=pooling)
        assert torch.allclose(together[1:], alone, atol=1e-6)
