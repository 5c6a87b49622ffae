"""Where one of the other libraries is not installed, what needs it is not collected, and nothing else."""

from glassformer.errors import ConfigError
from glassformer.interop.optional import required

NEEDED = {
    "ctranslate2": ["test_ctranslate2.py"],
    "onnxruntime": ["test_onnx.py"],
    "onnxscript": ["test_onnx.py"],
    "sentencepiece": ["test_marian_vocabulary.py"],
    "transformers": [
        "test_bart.py",
        "test_huggingface_*.py",
        "test_hub.py",
        "test_incomplete_folders.py",
        "test_unsupported_settings.py",
        "test_sentence_vectors.py",
        "test_marian_vocabulary.py",
        "test_stacks_*.py",
    ],
}

collect_ignore_glob: list[str] = []
for _library, _files in NEEDED.items():
    try:
        required(_library, _library)
    except ConfigError:
        collect_ignore_glob += _files
