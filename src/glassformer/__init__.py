"""The Transformer you can see through: train one on your own text, use it, look at every number in it.

Use a trained run (``load`` returns the class of its task):

    translator = glassformer.load("runs/multi30k")                  # a Translator
    translator.translate(["A dog runs."])                           # one text each
    translator.hypotheses(["A dog runs."], n_best=3)                # several, with scores
    glassformer.load("runs/gpt").generate(["To be"])                # a Generator
    glassformer.load("runs/bert").fill(["A [MASK] runs."])          # a Filler; also embed
    glassformer.load("runs/banking77").classify(["my card?"])       # a Classifier; Tagger: tag

Look inside:

    example = glassformer.examine(translator, "A dog runs.")        # every tensor of one pass
    example.trace["encoder.layers.0.self_attention.weights"]
    glassformer.explain(example.trace, "memory", position=0, d_model=3)  # the formula of a number, and its check
    glassformer.save_view(glassformer.view(example, "decoder.0.cross_attention"), "attention.svg")
    glassformer.walkthrough("runs/multi30k", "A dog runs.")         # step by step, with checks
    glassformer.report("runs/multi30k", "A dog runs.").save("report.html")
    glassformer.explore(translator, "A dog runs.")                  # the same page, in a notebook
    with glassformer.trace(model, edits={"*.weights": f}) as t:     # record and edit any model
        model(source, target)

Configurations: ``read_config("configs/multi30k.toml")``; user errors are ``GlassformerError``.
The guide is docs/python.md. Public names are imported when first used, so that importing the package costs nothing.
"""

from glassformer.lazy_imports import lazy_attributes

TYPE_CHECKING = False  # no import of typing, as in ``lazy_imports``
if TYPE_CHECKING:
    from glassformer.errors import CheckpointError, ConfigError, DataError, GlassformerError
    from glassformer.explain import Example, Trace, View, examine, save_view, trace, view, view_tensor
    from glassformer.explain.formula.formula import explain
    from glassformer.explain.tour import report, walkthrough
    from glassformer.predict import Classifier, Encoder, Filler, Forecaster, Generator, ImageClassifier, Tagger, load
    from glassformer.predict.translator import CrossAttention, Translation, Translator
    from glassformer.taps import tap, tracing
    from glassformer.train import parse_config, read_config
    from glassformer.train.function import train
    from glassformer.web.notebook import explore

__version__ = "0.1.0"

_HOMES = {
    "CheckpointError": "errors",
    "Classifier": "predict",
    "ConfigError": "errors",
    "CrossAttention": "predict.translator",
    "DataError": "errors",
    "Encoder": "predict",
    "Example": "explain",
    "Filler": "predict",
    "Forecaster": "predict",
    "Generator": "predict",
    "GlassformerError": "errors",
    "ImageClassifier": "predict",
    "Tagger": "predict",
    "Trace": "explain",
    "Translation": "predict.translator",
    "Translator": "predict.translator",
    "View": "explain",
    "examine": "explain",
    "explain": "explain",
    "explore": "web.notebook",
    "load": "predict",
    "parse_config": "train",
    "read_config": "train",
    "report": "explain.tour",
    "save_view": "explain",
    "tap": "taps",
    "trace": "explain",
    "tracing": "taps",
    "train": "train",
    "view": "explain",
    "view_tensor": "explain",
    "walkthrough": "explain.tour",
}

__all__ = [
    "CheckpointError",
    "Classifier",
    "ConfigError",
    "CrossAttention",
    "DataError",
    "Encoder",
    "Example",
    "Filler",
    "Forecaster",
    "Generator",
    "GlassformerError",
    "ImageClassifier",
    "Tagger",
    "Trace",
    "Translation",
    "Translator",
    "View",
    "examine",
    "explain",
    "explore",
    "load",
    "parse_config",
    "read_config",
    "report",
    "save_view",
    "tap",
    "trace",
    "tracing",
    "train",
    "view",
    "view_tensor",
    "walkthrough",
]

if not TYPE_CHECKING:  # where types are checked, a name that is not there is a fault
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
