"""Arguments of the kernels: each class mirrors the C++ struct of the same name.

Loading the library compares sizes, and names and offsets of all fields, with those in C++ (``layouts.h``).
"""

from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p

ACTIVATIONS = {"relu": 1, "gelu": 2, "silu": 3, "gelu_tanh": 4}
"""``enum Activation`` of activation.h; 0 is none."""
POOLINGS = {"mean": 1, "max": 2, "cls": 3}
"""``enum Pooling`` of arguments.h; 0 is none: the vectors of all tokens."""


class Parameter(Structure):
    """Addresses of a weight tensor and of its gradient, or nulls."""

    _fields_ = (("value", c_void_p), ("gradient", c_void_p))


class Norm(Structure):
    """LayerNorm or, with ``rms``, RMSNorm; none if the weight is null."""

    _fields_ = (("weight", Parameter), ("bias", Parameter), ("epsilon", c_float), ("rms", c_int32))


class Linear(Structure):
    """A weight ``[outputs, inputs]`` and a bias. For inference the weight is packed; int8 weights have scales."""

    _fields_ = (
        ("weight", Parameter),
        ("bias", Parameter),
        ("scales", c_void_p),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("parts", c_int32),
    )


class Layer(Structure):
    """One block; missing parts are null. Inference merges some products (see arguments.h)."""

    NORMS = ("self_norm", "cross_norm", "feed_forward_norm")
    SELF = ("query", "key", "value", "output")
    CROSS = ("cross_query", "cross_key", "cross_value", "cross_output")
    FEED_FORWARD = ("gate", "inner", "outer")
    _fields_ = (*((name, Norm) for name in NORMS), *((name, Linear) for name in (*SELF, *CROSS, *FEED_FORWARD)))


class Heads(Structure):
    """Numbers of heads of queries and of keys and values; widths of a query or key, and of a value."""

    _fields_ = tuple((name, c_int32) for name in ("n_heads", "n_kv_heads", "d_k", "d_v"))


class PackedStack(Structure):
    """N blocks with the embedding before them."""

    _fields_ = (
        *((name, c_int32) for name in ("n_layers", "d_model")),
        ("heads", Heads),
        *((name, c_int32) for name in ("pre_norm", "activation", "gated")),
        ("layers", POINTER(Layer)),
        ("final_norm", Norm),
        ("embedding", c_void_p),
        ("vocab_size", c_int64),
        ("scale", c_float),
        ("embedding_norm", Norm),
    )


class RotaryTables(Structure):
    """Cosines and sines of rotary positions, or nulls; see ``ops.rotary_tables``."""

    _fields_ = (("cosines", c_void_p), ("sines", c_void_p))


class EncoderBatch(Structure):
    """Sequences for an encoder, and the memory for its results; see arguments.h."""

    _fields_ = (
        ("sequences", c_int64),
        ("length", c_int64),
        ("cu_seqlens", c_void_p),
        ("x", c_void_p),
        ("ids", c_void_p),
        ("segments", c_void_p),
        ("positions", c_void_p),
        ("segment_table", c_void_p),
        ("n_segments", c_int64),
        ("pooling", c_int32),
        ("result", c_void_p),
    )


class DecoderCache(Structure):
    """Key–value cache of the hypotheses; see arguments.h."""

    _fields_ = (
        ("steps", c_int64),
        ("keys_values", POINTER(c_void_p)),
        ("rows", POINTER(c_int64)),
        ("beam_index", c_void_p),
        ("stride", c_int64),
        ("memory", POINTER(c_void_p)),
        ("first", c_void_p),
        ("length", c_void_p),
        ("rows_per_sentence", c_int64),
        ("shared", c_int64),
        ("bfloat16", c_int32),
    )


class NewestTokens(Structure):
    """The newest token of each row, for one step of decoding; see arguments.h."""

    _fields_ = (
        ("rows", c_int64),
        ("ids", c_void_p),
        ("position", c_void_p),
        ("stride", c_int64),
        ("logits", c_void_p),
    )


class Operand(Structure):
    """A matrix of a product: its address, and its strides across and along the summed axis."""

    _fields_ = (("data", c_void_p), ("across", c_int64), ("along", c_int64))


class MatrixProduct(Structure):
    """``result = a · b + bias``; see products.cpp."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "columns", "depth")),
        ("a", Operand),
        ("b", Operand),
        ("bias", c_void_p),
        ("result", c_void_p),
        ("threads", c_int64),
    )


class Sequences(Structure):
    """A tensor ``[batch, head, position, d]``: its address and its first three strides."""

    _fields_ = (("data", c_void_p), *((name, c_int64) for name in ("batch", "head", "position")))


class DenseMask(Structure):
    """1 for visible pairs of query and key, with strides (0 for a broadcast axis); or null, if all are."""

    _fields_ = (("data", c_void_p), *((name, c_int64) for name in ("batch", "head", "query", "key")))


class SentenceMask(Structure):
    """A mask of rows of several sentences, which the kernels fill; see arguments.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "queries", "keys")),
        *((name, c_void_p) for name in ("query_sentences", "key_sentences", "visible")),
        ("causal", c_int32),
        ("threads", c_int64),
    )


class Attention(Structure):
    """Tensors and sizes of one call of attention; see attention.cpp."""

    GRADIENTS = ("q_gradient", "k_gradient", "v_gradient", "context_gradient")
    _fields_ = (
        *((name, c_int64) for name in ("batch", "queries", "keys")),
        ("heads", Heads),
        *((name, Sequences) for name in ("q", "k", "v", "context", *GRADIENTS)),
        ("mask", DenseMask),
        ("log_sums", c_void_p),
        ("seed", c_uint64),
        ("threshold", c_int32),
        ("bfloat16", c_int32),
        ("threads", c_int64),
        ("cu_seqlens_q", c_void_p),
        ("cu_seqlens_k", c_void_p),
    )


class Embedding(Structure):
    """Tensors and sizes of an embedding; see embedding.cpp."""

    _fields_ = (
        *((name, c_int64) for name in ("tokens", "d_model")),
        *((name, c_void_p) for name in ("ids", "positions", "segments", "mask", "matrix", "table", "segment_table")),
        *((name, c_int64) for name in ("matrix_rows", "table_rows", "segment_rows")),
        ("norm", Norm),
        ("scale", c_float),
        ("threshold", c_int32),
        ("seed", c_uint64),
        *((name, c_void_p) for name in ("x", "d_x", "rows", "d_rows", "d_table", "d_segments")),
        *((name, c_int64) for name in ("n_rows", "threads")),
    )


class Rotation(Structure):
    """A rotation of queries or keys by rotary positions; see rope.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "length", "size")),
        ("x", Sequences),
        ("y", Sequences),
        ("tables", RotaryTables),
        ("bfloat16", c_int32),
        ("threads", c_int64),
        ("cu_seqlens", c_void_p),
    )


class TrainingStack(Structure):
    """Tensors and sizes of a stack in training; see arguments.h."""

    _fields_ = (
        *((name, c_int64) for name in ("n_layers", "batch", "length", "memory_length", "d_model", "d_ff")),
        ("heads", Heads),
        ("layers", POINTER(Layer)),
        ("x", c_void_p),
        ("memory", c_void_p),
        ("mask", DenseMask),
        ("memory_mask", DenseMask),
        ("rotary", RotaryTables),
        *((name, c_void_p) for name in ("inverse_sines", "result", "saved", "d_result", "d_x", "d_memory")),
        ("seed", c_uint64),
        *((name, c_int32) for name in ("threshold", "attention_threshold", "pre_norm", "bfloat16", "activation")),
        ("float_x", c_int32),
        ("threads", c_int64),
        ("selected", c_void_p),
        ("selected_count", c_int64),
        ("final_norm", Norm),
        ("cross_layer", c_int64),
        ("cross_input", c_void_p),
        ("d_cross_input", c_void_p),
    )


class RowSum(Structure):
    """Rows that are added to those of a matrix; see optimizer.cpp."""

    _fields_ = (
        ("rows", c_void_p),
        *((name, c_int64) for name in ("count", "width", "matrix_rows")),
        ("values", c_void_p),
        ("matrix", c_void_p),
        ("threads", c_int64),
    )


class ParameterState(Structure):
    """State of one parameter in an update: weight, gradient, step, moments, average, copy; see arguments.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("value", "gradient", "step", "exp_avg", "exp_avg_sq", "average", "bf16_copy")),
        ("count", c_int64),
        ("learning_rate", c_double),
        ("decay", c_float),
        ("bfloat16", c_int32),
    )


class Update(Structure):
    """An update of all parameters; see optimizer.cpp."""

    _fields_ = (
        ("parameters", POINTER(ParameterState)),
        ("count", c_int64),
        ("squared_norm", c_double),
        *((name, c_float) for name in ("scale", "beta1", "beta2", "epsilon", "ema_rate")),
        ("threads", c_int64),
    )


class ProjectedLoss(Structure):
    """Output projection and cross-entropy; see train_loss.cpp."""

    _fields_ = (
        *((name, c_int64) for name in ("tokens", "vocab_size", "d_model")),
        *((name, c_void_p) for name in ("hidden", "weight", "bias", "target")),
        ("smoothing", c_float),
        ("bfloat16", c_int32),
        *((name, c_void_p) for name in ("d_hidden", "d_weight", "d_bias")),
        *((name, c_double) for name in ("nll", "smooth")),
        ("threads", c_int64),
    )


class Extension(Structure):
    """A step of beam search; see beam.cpp."""

    _fields_ = (
        *(
            (name, c_int64)
            for name in ("sentences", "live", "vocab_size", "per_hypothesis", "candidates", "beam", "end")
        ),
        *(
            (name, c_void_p)
            for name in ("logits", "normalizers", "totals", "new_totals", "log_probs", "parents", "tokens")
        ),
        ("n_ended", c_int64),
    )


class BeamSteps(Structure):
    """Several steps of a beam search; see beam.cpp."""

    _fields_ = (
        ("extension", Extension),
        *((name, c_int64) for name in ("most", "done", "length", "capacity")),
        *((name, c_void_p) for name in ("tokens", "other_tokens", "token_log_probs", "other_log_probs", "forbidden")),
        ("n_forbidden", c_int64),
        *((name, c_void_p) for name in ("logits", "normalizers", "totals", "best", "sums")),
    )
