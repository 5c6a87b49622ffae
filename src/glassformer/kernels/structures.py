"""What the kernels are given, as C++ lays it out: each class mirrors the struct of its name."""

from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint64, c_void_p


class Linear(Structure):
    """Weights ``[outputs, inputs]``, packed; with scales they are in eight bits."""

    _fields_ = (
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("weights", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
    )


class Norm(Structure):
    """A layer normalisation, or none where the weight is null."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("epsilon", c_float))


class Layer(Structure):
    """One block; what an encoder lacks stays zero."""

    _fields_ = (
        *((name, Norm) for name in ("own_norm", "cross_norm", "feed_forward_norm")),
        *((name, Linear) for name in ("own", "own_output", "query", "memory", "cross_output", "inner", "outer")),
    )


class Stack(Structure):
    """N blocks. The three sizes after ``d_model`` are of the heads."""

    _fields_ = (
        *((name, c_int32) for name in ("layers", "d_model", "n_heads", "d_k", "d_v", "pre_norm", "activation")),
        ("layer", POINTER(Layer)),
        ("last", Norm),
        ("embedding", c_void_p),
        ("vocabulary", c_int64),
    )


class Past(Structure):
    """What hypotheses have behind them; see kernels.cpp."""

    _fields_ = (
        ("positions", c_int64),
        ("past", POINTER(c_void_p)),
        ("past_rows", POINTER(c_int64)),
        ("ancestor", c_void_p),
        ("stride", c_int64),
        ("memory", POINTER(c_void_p)),
        ("first", c_void_p),
        ("length", c_void_p),
        ("rows_per_sentence", c_int64),
    )


class Operand(Structure):
    """A matrix of a product: its address, and how far apart entries lie across and along the summed axis."""

    _fields_ = (("data", c_void_p), ("across", c_int64), ("along", c_int64))


class Product(Structure):
    """``result = a · b + bias``; see products.h."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "columns", "depth")),
        ("a", Operand),
        ("b", Operand),
        ("bias", c_void_p),
        ("result", c_void_p),
        ("threads", c_int64),
    )


class Sequences(Structure):
    """Rows of numbers of each head of each batch, and how far apart they lie."""

    _fields_ = (("data", c_void_p), *((name, c_int64) for name in ("batch", "head", "position")))


class Attention(Structure):
    """See training_attention.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "queries", "keys", "d_k", "d_v")),
        *((name, Sequences) for name in ("q", "k", "v", "context", "d_q", "d_k_", "d_v_", "d_context")),
        ("mask", c_void_p),
        *((name, c_int64) for name in ("mask_batch", "mask_head", "mask_query", "mask_key")),
        ("log_sums", c_void_p),
        ("seed", c_uint64),
        ("threshold", c_int32),
        ("bfloat16", c_int32),
        ("threads", c_int64),
    )


class Rotation(Structure):
    """See rotary.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "length", "size")),
        ("from_", Sequences),
        ("to", Sequences),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("bfloat16", c_int32),
        ("threads", c_int64),
    )
