"""Skip the tests that need a library that is not installed."""

from glassformer.errors import ConfigError
from glassformer.interop import require

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
        require(_library, _library)
    except ConfigError:
        collect_ignore_glob += _files
