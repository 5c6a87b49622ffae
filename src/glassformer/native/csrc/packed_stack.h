// Parts of inference with packed weights that full sequences and steps with a cache share.
//
// Activations are float32; cached keys and values may be bfloat16. The result of a row does not depend on other rows of
// its batch.
#pragma once
#include "api.h"
#include "cached_attention.h"
#include "decoding.h"
#include "linear.h"
#include "norm.h"
#include "rope.h"

#define ENOUGH_NUMBERS (1 << 17)  // of keys and values, from which on several cores gain time

static inline void normalize_rows(const Norm& norm, const float* x, int64_t rows, int64_t d, float* to) {
    for (int64_t row = 0; norm.weight.value && row < rows; row++) normalize(norm, x + row * d, d, to + row * d);
}

// x + Sublayer(LayerNorm(x)), or LayerNorm(x + Sublayer(x)). The sub-layer adds its result to x.
template <class Sublayer>
static void add_and_norm(const StackCall& stack, const Norm& norm, float* x, int64_t rows, Sublayer sublayer) {
    const int64_t d = stack.d_model;
    const float* input = x;
    if (stack.pre_norm) {
        auto normalized = workspace<float>(NORMALIZED, rows * d);
        normalize_rows(norm, x, rows, d, normalized);
        input = normalized;
    }
    sublayer(input, Output{x, d, NONE, true});
    if (!stack.pre_norm) normalize_rows(norm, x, rows, d, x);
}

// activation(gate) · inner of each row of 2 · d_ff numbers, in place, to contiguous rows of d_ff.
static inline void apply_gates(Activation activation, int64_t rows, int64_t d_ff, float* x) {
    for (int64_t row = 0; row < rows; row++) {
        const float *gates = x + row * 2 * d_ff, *inner = gates + d_ff;
        float* to = x + row * d_ff;
        int64_t i = 0;
        for (; i + LANES <= d_ff; i += LANES) store(to + i, activated(activation, load(gates + i)) * load(inner + i));
        for (; i < d_ff; i++) to[i] = activated(activation, broadcast(gates[i]))[0] * inner[i];
    }
}

static inline void feed_forward(const StackCall& stack, const Layer& layer, float* x, int64_t rows) {
    const auto activation = static_cast<Activation>(stack.activation);
    add_and_norm(stack, layer.feed_forward_norm, x, rows, [&](const float* input, Output out) {
        const int64_t width = layer.inner.outputs;
        auto hidden = workspace<float>(PROJECTED, rows * width);
        linear(layer.inner, input, rows, {hidden, width, stack.gated ? NONE : activation, false}, stack.threads);
        if (stack.gated) apply_gates(activation, rows, layer.outer.inputs, hidden);
        linear(layer.outer, hidden, rows, out, stack.threads);
    });
}

// Section 3.4: the row of the token × `scale`, added to the positional encoding in x.
static inline void embed(const StackCall& stack, int64_t id, float* x) {
    const float* row = stack.embedding + id * stack.d_model;
    for (int64_t i = 0; i < stack.d_model; i++) x[i] = row[i] * stack.scale + x[i];
    normalize_rows(stack.embedding_norm, x, 1, stack.d_model, x);
}

// Rotate the adjacent queries and keys of one token by the angles of `position`.
static inline void rotate_queries_and_keys(const StackCall& stack, int64_t position, float* qkv) {
    const RotaryTables& tables = stack.rotary;
    const int64_t size = stack.heads.d_k;
    for (int head = 0; tables.cosines && head < stack.heads.n_heads + stack.heads.n_kv_heads; head++, qkv += size)
        rotate_head(qkv, tables.cosines + position * size, tables.sines + position * size, size, qkv);
}

// Equation 1 for `rows` queries of at most `longest` visible positions. write_keys(row, to) writes a pointer to each
// visible position and returns their number. Several cores divide the rows or, if these are few, the heads.
template <class T, class WriteKeys>
static void attend_rows(
    const StackCall& stack, int64_t rows, int64_t longest, const float* q, int64_t stride, float* context,
    WriteKeys write_keys
) {
    const Heads& heads = stack.heads;
    const bool enough = rows * longest * (heads.k_width() + heads.v_width()) >= ENOUGH_NUMBERS;
    const int64_t threads = enough ? threads_for_small_work(stack.threads) : 1;
    const int64_t head_groups = rows < 2 * threads ? ceil_div(heads.n_heads, HEADS_AT_ONCE) : 1;
    parallel_for(threads, rows * head_groups, chunk_size(threads, rows * head_groups), [&](int64_t from, int64_t to) {
        auto keys = workspace<const T*>(KEY_ROWS, longest);
        auto scores = workspace<float>(SCORES, heads.n_heads * (padded(longest, LANES) + LANES));
        for (int64_t index = from; index < to; index++) {
            const int64_t row = index / head_groups, count = write_keys(row, keys);
            const int first = static_cast<int>(index % head_groups) * HEADS_AT_ONCE;
            const int last = head_groups == 1 ? heads.n_heads : std::min(first + HEADS_AT_ONCE, heads.n_heads);
            attend(heads, first, last, q + row * stride, count, keys, context + row * heads.context_width(), scores);
        }
    });
}
