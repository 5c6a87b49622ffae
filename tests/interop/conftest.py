"""Where one of the other libraries is not installed, nothing of this folder is collected."""

from glassformer.config import ConfigError
from glassformer.interop.optional import required

collect_ignore_glob: list[str] = []
for _library in ("transformers", "ctranslate2", "onnxruntime", "onnxscript", "sentencepiece"):
    try:
        required(_library, _library)
    except ConfigError:
        collect_ignore_glob = ["test_*.py"]
