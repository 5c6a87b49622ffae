"""GPT and BERT in use beside their peers: the same random weights, alternating in one run.

    python -m benchmarks.family_inference

A GPT-2 of 384 numbers, 6 heads and 6 layers continues prompts of 16 tokens by 200 greedily, one prompt and 32 at once,
beside CTranslate2 (the best of one worker with one or two threads and two workers with one). A BERT of MiniLM's size
embeds the captions of a file, beside Hugging Face and ONNX Runtime (dynamic quantization for int8), each with the batch
size that is best for it.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import describe
from glassformer.generate import LanguageDecodingConfig, SpecialTokens, by_length, continue_texts
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.native import Accelerated

RESULTS = Path(__file__).parent / "results" / "family_inference.json"
GPT_VOCABULARY, BERT_VOCABULARY, NEW, PROMPT = 8000, 30522, 200, 16
SIZES = {"d_model": 384, "n_layers": 6, "d_ff": 1536, "dropout": 0.0}
BATCH_TOKENS = (512, 1024, 2048, 4096)
THREADS = torch.get_num_threads()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=Path, default=Path("../shared/data/multi30k/raw/test_2016_flickr.en"))
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": describe(), "results": []}
    with tempfile.TemporaryDirectory() as folder:
        for precision, rows in product(("float32", "int8"), (1, 32)):
            contenders = {
                "glassformer": ours_gpt(precision, rows),
                "CTranslate2": ctranslate2_gpt(folder, precision, rows),
            }
            record(report, {"task": f"GPT, batch {rows}", "precision": precision, **rates(contenders, options.turns)})
        texts = token_ids(options.captions)
        for precision in ("float32", "int8"):
            ours, similarity = ours_bert(texts, precision)
            contenders = {"glassformer": ours, "ONNX Runtime": onnx_bert(folder, texts, precision)}
            if precision == "float32":
                contenders["Hugging Face"] = huggingface_bert(texts)
            row = {"task": "BERT", "precision": precision, **rates(contenders, options.turns)}
            record(report, {**row, "cosine to float32": similarity})


def record(report: dict[str, Any], row: dict[str, Any]) -> None:
    """Print a row and write the report so far."""
    report["results"].append(row)
    print(json.dumps(row), flush=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def rates(contenders: dict[str, Callable[[], float]], turns: int) -> dict[str, Any]:
    """Medians of each, tokens or texts a second, and how many times as fast as each peer glassformer is."""
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, run in contenders.items():
            torch.set_num_threads(THREADS)  # CTranslate2 leaves this thread with the number of its own
            time.sleep(1)  # until the threads of the one before wait
            measured[name].append(run())
    medians = {name: statistics.median(values) for name, values in measured.items()}
    ratios = {f"beside {name}": round(medians["glassformer"] / median, 2) for name, median in medians.items()}
    del ratios["beside glassformer"]
    return {name: [round(value) for value in values] for name, values in measured.items()} | ratios


def fastest(runs: list[Callable[[], int]]) -> float:
    """Tokens or texts a second of the fastest of ``runs``, the second time that each runs."""
    best = 0.0
    for run in runs:
        run()
        began = time.perf_counter()
        best = max(best, run() / (time.perf_counter() - began))
    return best


def prompts(rows: int) -> list[list[int]]:
    return np.random.default_rng(0).integers(3, GPT_VOCABULARY, (rows, PROMPT)).tolist()


def ours_gpt(precision: Any, rows: int) -> Callable[[], float]:
    torch.manual_seed(0)
    model = GPT(GPTConfig.parse({"vocab_size": GPT_VOCABULARY, "n_heads": 6, **SIZES})).eval()
    form, symbols = Accelerated(model).form("native", precision), SpecialTokens(pad=0, start=0, end=1)
    config = LanguageDecodingConfig(sample=False, max_length=NEW, min_length=NEW, precision=precision)

    def run() -> int:
        found = continue_texts(form, prompts(rows), symbols, config, torch.device("cpu"), 1024)
        return sum(len(one.tokens) for (one,) in found)

    return lambda: fastest([run])


def ctranslate2_gpt(folder: str, precision: str, rows: int) -> Callable[[], float]:
    import ctranslate2
    from ctranslate2.converters.transformers import GPT2Loader
    from transformers import GPT2Config, GPT2LMHeadModel

    path, words = Path(folder) / "gpt2", [str(token) for token in range(GPT_VOCABULARY)]
    if not path.exists():
        torch.manual_seed(0)
        sizes = {"n_embd": 384, "n_head": 6, "n_layer": 6, "n_positions": 1024}
        spec = GPT2Loader().get_model_spec(GPT2LMHeadModel(GPT2Config(vocab_size=GPT_VOCABULARY, **sizes)))
        spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = words[2], words[0], words[1]
        spec.register_vocabulary(words)
        spec.validate()
        spec.optimize(quantization=None)
        path.mkdir()
        spec.save(str(path))
    given = [[words[token] for token in one] for one in prompts(rows)]

    def run(workers: int, threads: int) -> Callable[[], int]:
        generator = ctranslate2.Generator(
            str(path), compute_type=precision, inter_threads=workers, intra_threads=threads
        )

        def generate() -> int:
            found = generator.generate_batch(
                given,
                max_length=NEW,
                min_length=NEW,
                include_prompt_in_result=False,
                max_batch_size=max(1, rows // workers),
            )
            return sum(len(one.sequences_ids[0]) for one in found)

        return generate

    return lambda: fastest([run(1, 1), run(1, 2), run(2, 1)])


def token_ids(captions: Path) -> list[list[int]]:
    """Random tokens, as many for each caption as it has words, and three more."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(5, BERT_VOCABULARY, len(line.split()) + 3).tolist()
        for line in captions.read_text(encoding="utf-8").splitlines()
    ]


def batches(texts: list[list[int]], tokens: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Padded ids and masks, texts of similar length together."""
    padded = []
    for indices in by_length([len(ids) for ids in texts], tokens):
        ids = np.zeros((len(indices), max(len(texts[index]) for index in indices)), np.int64)
        mask = np.zeros_like(ids)
        for row, index in enumerate(indices):
            ids[row, : len(texts[index])], mask[row, : len(texts[index])] = texts[index], 1
        padded.append((ids, mask))
    return padded


def embedding_runs(texts: list[list[int]], embed: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[[], float]:
    def run(tokens: int) -> Callable[[], int]:
        def embed_all() -> int:
            return sum(len(embed(ids, mask)) for ids, mask in batches(texts, tokens))

        return embed_all

    return lambda: fastest([run(tokens) for tokens in BATCH_TOKENS])


def ours_bert(texts: list[list[int]], precision: Any) -> tuple[Callable[[], float], float]:
    """The run, and the least cosine of a vector to that in float32."""
    torch.manual_seed(0)
    model = BERT(BERTConfig.parse({"vocab_size": BERT_VOCABULARY, "n_heads": 12, **SIZES})).eval()
    forms = [Accelerated(model).form("native", one) for one in (precision, "float32")]

    @torch.inference_mode()
    def embed(ids: np.ndarray, mask: np.ndarray, form: Any = forms[0]) -> torch.Tensor:
        found: torch.Tensor = form.embed(torch.from_numpy(ids), torch.from_numpy(mask).bool())
        return found

    pairs = [(embed(*one), embed(*one, forms[1])) for one in batches(texts, 1024)]
    least = min(float(torch.nn.functional.cosine_similarity(*pair).min()) for pair in pairs)
    return embedding_runs(texts, embed), round(least, 5)


def huggingface_model() -> Any:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    return BertModel(BertConfig(vocab_size=BERT_VOCABULARY, **sizes)).eval()


def huggingface_bert(texts: list[list[int]]) -> Callable[[], float]:
    model = huggingface_model()

    @torch.inference_mode()
    def embed(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        found = model(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state.numpy()
        return mean(found, mask)

    return embedding_runs(texts, embed)


def onnx_bert(folder: str, texts: list[list[int]], precision: str) -> Callable[[], float]:
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = huggingface_model()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    path, axes = Path(folder) / "bert.onnx", {0: "rows", 1: "tokens"}
    if not path.exists():
        example = tuple(map(torch.from_numpy, batches(texts, 1024)[0]))
        names = {"input_names": ["ids", "mask"], "output_names": ["hidden"]}
        torch.onnx.export(Encoder(), example, path, dynamic_shapes={"ids": axes, "mask": axes}, dynamo=True, **names)
    if precision == "int8":
        quantize_dynamic(path, path := path.with_name("bert8.onnx"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return embedding_runs(texts, lambda ids, mask: mean(session.run(None, {"ids": ids, "mask": mask})[0], mask))


def mean(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    found: np.ndarray = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return found


if __name__ == "__main__":
    main()
