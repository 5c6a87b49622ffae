// Attention over full sequences in bfloat16, with instructions that multiply pairs.
//
// Scores are computed as keys × queries, at most QUERY_BLOCK queries at a time: lanes of vectors are queries, so
// softmax needs no sum across lanes, and rows of weights are the operands of the gradients of keys and values. Weights
// and gradients of scores are rounded to bfloat16. A block reads the keys from the first to the last that are visible
// to it, in pairs, with AMX in tiles. Hidden ones have the weight 0: their NaN may reach all queries of the block.
#pragma once
#include "microkernel.h"
#if HAS_BFLOAT16
#include "dropout.h"
#include "next_head.h"
#include "pair_head.h"

// Queries of one sequence from `first` on, as rows and as lanes of vectors, and the keys visible to them. Without AMX a
// block ends with a sentence of the row, so that its products have few hidden keys.
struct QueryBlock {
    int64_t first, rows, lanes;
    Range keys;
    int64_t first_end;  // end of the keys visible to the first of two vectors; with AMX keys.high

    QueryBlock(const SequenceAttention& a, const VisibleKeys& visible, int64_t first)
        : first(first), rows(std::min<int64_t>(QUERY_BLOCK, a.queries - first)) {
        if (!HAS_AMX) rows = visible.connected(first, rows);
        lanes = padded(rows, PAIR_COLUMNS);
        const Range range = visible.range(first, first + rows);
        keys = {range.low / PAIR_KEYS * PAIR_KEYS, padded(range.high, PAIR_KEYS)};
        first_end = keys.high;
        if (!HAS_AMX && lanes == 2 * LANES)
            first_end = std::max(keys.low, padded(visible.range(first, first + LANES).high, PAIR_KEYS));
    }

    int64_t end() const { return first + rows; }
};

// Copy a block of queries, or of gradients of contexts, transposed and, if `pairs` is not null, in pairs.
static void copy_block(
    const Rows<uint16_t>& from, const VisibleKeys& visible, const QueryBlock& block, const HeadWidth& width,
    const PairHead& w, Pair* units, Pair* pairs
) {
    const int64_t stride = width.stride / 2;
    for (int64_t i = block.end(); i < block.end() + block.rows; i++) from.fetch(i, width.size);  // of the next block
    copy_used_rows(from, block.first, block.lanes, width, w.rows, [&](int64_t i) {
        return i < block.end() && visible.any(i);
    });
    for (int64_t unit = 0; unit < width.steps; unit += LANES)
        for (int64_t i = 0; i < block.lanes; i += LANES)
            transpose_square(
                reinterpret_cast<const float*>(w.rows + i * stride + unit), stride,
                reinterpret_cast<float*>(units + unit * QUERY_BLOCK + i), QUERY_BLOCK
            );
    if (pairs) pair_rows(w.rows, block.lanes, width.stride, pairs);
}

// Products of the visible keys, or of their values, with a block of queries: to[key][query].
static void multiply_keys(
    const KeyRows& rows, const HeadWidth& width, const Pair* units, const QueryBlock& block, float* to
) {
    auto multiply = [&](int64_t low, int64_t high, int64_t lane) {
        if (low >= high) return;
        OperandOf<Pair> a = rows.operand;
        a.data += low * a.across;
        multiply_pairs<false>(
            a, std::min(high, rows.count) - low, {units + lane, QUERY_BLOCK}, block.lanes - lane, width.steps,
            to + low * QUERY_BLOCK + lane, QUERY_BLOCK
        );
    };
    multiply(block.keys.low, block.first_end, 0);
    multiply(block.first_end, block.keys.high, LANES);
}

// results[query] = Σ over the visible keys of weights · pairs.
static void multiply_weights(const PairHead& w, const Pair* pairs, const HeadWidth& width, const QueryBlock& block) {
    const int64_t low = block.keys.low;
    auto multiply = [&](int64_t row, int64_t count, int64_t high) {
        OperandOf<Pair> a = weights_at(w.weights, low);
        a.data += row * a.across;
        multiply_pairs<false>(
            a, padded(count, PAIR_ROWS), {pairs + low / 2 * width.stride, width.stride}, width.columns,
            (high - low) / 2, w.results + row * width.stride, width.stride
        );
    };
    const int64_t in_first = block.first_end < block.keys.high ? LANES : 0;
    multiply(0, in_first, block.first_end);
    multiply(in_first, block.rows - in_first, block.keys.high);
}

// to[key] += Σ over a block of queries of rows · pairs.
static void add_key_gradients(
    const uint16_t* rows, const Pair* pairs, const HeadWidth& width, const QueryBlock& block, float* to
) {
    const int64_t stride = QUERY_BLOCK / 2;
    auto multiply = [&](int64_t low, int64_t high, int64_t lane) {
        if (low >= high) return;
        multiply_pairs<true>(
            adjacent_steps(reinterpret_cast<const Pair*>(rows) + low * stride + lane / 2, stride), high - low,
            {pairs + lane / 2 * width.stride, width.stride}, width.columns, pair_steps(block.rows - lane),
            to + low * width.stride, width.stride
        );
    };
    multiply(block.keys.low, block.first_end, 0);
    multiply(block.first_end, block.keys.high, LANES);
}

// At most LANES queries of a block, from the one at `lane` on.
struct QueryVector {
    const SequenceAttention& a;
    const VisibleKeys& visible;
    const QueryBlock& block;
    int64_t lane, first, count;  // first query, number of queries
    int64_t row;                 // of the dropout
    Range range, of_all;         // keys visible to any query, in pairs, and to all
    Ints used;                   // −1 in the lanes of queries, 0 in the others

    QueryVector(
        const SequenceAttention& a, const VisibleKeys& visible, int64_t h, const QueryBlock& block, int64_t lane
    )
        : a(a), visible(visible), block(block), lane(lane), first(block.first + lane),
          count(std::clamp<int64_t>(block.rows - lane, 0, LANES)),
          row(a.queries_before * a.heads.n_heads + h * a.queries + first), range(visible.range(first, first + count)),
          of_all(visible.range_of_all(first, first + count)) {
        range = {range.low / 2 * 2, padded(range.high, 2)};
        used = lane_numbers() < static_cast<int32_t>(count);
    }

    float dropout_scale() const { return Dropout(a.seed, a.threshold).scale; }
    float scale() const { return 1.0f / std::sqrt(static_cast<float>(a.heads.d_k)); }

    bool visible_to_all(int64_t key) const { return key >= of_all.low && key < of_all.high; }

    // −1 in the lanes of the queries to which the key is visible, 0 in the others.
    Ints visible_lanes(int64_t key) const { return visible_to_all(key) ? used : used & visible.lanes(first, key); }

    // The values of those queries; `hidden` for the others.
    Floats visible_values(int64_t key, Floats values, Floats hidden) const {
        if (count == LANES && visible_to_all(key)) return values;
        return visible_lanes(key) ? values : hidden;
    }

    // −1 for weights that dropout keeps.
    Ints retained(int64_t key) const {
        return (weight_bits(a.seed, row, lane_numbers(), Ints{} + static_cast<int32_t>(key)) & 255) >= a.threshold;
    }

    // Write pairs(key), of a key and the next one, for each pair of keys of the block; 0 outside the range.
    template <class Pairs>
    void put_pairs(Pair* to, Pairs pairs) const {
        put_weight_pairs(block.keys.low, block.keys.high, lane, to, [&](int64_t key) {
            return key >= range.low && key < range.high ? pairs(key) : Ints{};
        });
    }
};

// Maxima of the scores, in units of ln 2, and the sums of the weights.
struct Denominators { Floats maxima, sums; };

// Weights of a vector of queries, times their denominators. This is a function of its own so that its vectors stay in
// registers.
template <bool DROPS>
NOINLINE Denominators put_undivided_weights(const QueryVector& q, const PairHead& w) {
    const float scale = q.scale() * LOG2_E, *scores = w.scores + q.lane;
    const Range range = q.range;
    Floats largest = broadcast(-INFINITY), total = {};
    for (int64_t key = range.low; key < range.high; key++) {
        const Floats values = load(scores + key * QUERY_BLOCK) * scale;
        largest = greater(largest, q.visible_values(key, values, broadcast(-INFINITY)));
    }
    auto weight = [&](int64_t key) {
        const Floats values = rough_power_of_two(load(scores + key * QUERY_BLOCK) * scale - largest);
        const Floats weights = q.visible_values(key, values, Floats{});
        total += weights;
        return rounded(DROPS ? (q.retained(key) ? weights : Floats{}) : weights);
    };
    q.put_pairs(w.weights, [&](int64_t key) {
        const Halves first = weight(key);
        return paired(first, weight(key + 1));
    });
    return {largest, total};
}

// Write these weights. Sets the logarithms of the denominators; returns the factors by which contexts are multiplied to
// divide by them.
static Floats put_weights(const QueryVector& q, const PairHead& w, float* log_sums) {
    const Denominators d = q.a.threshold ? put_undivided_weights<true>(q, w) : put_undivided_weights<false>(q, w);
    const Floats results = d.maxima * LN_2 + logarithm(d.sums);  // −∞ if all keys are masked
    for (int i = 0; i < q.count; i++) log_sums[q.first + i] = results[i];
    return d.sums == 0.0f ? Floats{} : q.dropout_scale() / d.sums;
}

static void attend_forward_pairs(
    const SequenceAttention& a, const VisibleKeys& visible, int64_t h, const PairHead& w, const KeyRows& keys
) {
    const Rows<uint16_t> q(a.q, h), context(a.context, h);
    const NextHead<uint16_t> next_head(a, h, false);
    for (int64_t first = 0, next; first < a.queries; first = next) {
        const QueryBlock block(a, visible, first);
        next = block.end();
        for (int64_t i = first; i < next; i++) context.fetch(i, a.heads.d_v);
        copy_block(q, visible, block, w.k, w, w.q_units, nullptr);
        next_head.fetch(first, next);
        multiply_keys(keys, w.k, w.q_units, block, w.scores);
        alignas(64) float factors[QUERY_BLOCK];
        for (int64_t i = 0; i < block.lanes; i += LANES)
            store(factors + i, put_weights({a, visible, h, block, i}, w, a.log_sums + h * a.queries));
        multiply_weights(w, w.v_pairs, w.v, block);
        for (int64_t i = 0; i < block.rows; i++) {
            float* row = w.results + i * w.v.stride;
            for (int64_t d = 0; d < w.v.columns; d += LANES) store(row + d, load(row + d) * factors[i]);
            put(row, a.heads.d_v, context[first + i]);
        }
    }
}

// Replace the scores of a vector of queries by weights, and the gradients of the weights after dropout by those of the
// weights before it; write the weights after dropout as rows. Returns Σ weights ∘ d_weights.
template <bool DROPS>
NOINLINE Floats restore_weight_rows(const QueryVector& q, const PairHead& w, Floats shift) {
    const float scale = q.scale() * LOG2_E, drop_scale = q.dropout_scale();
    float *scores = w.scores + q.lane, *d_weights = w.d_weights + q.lane;
    uint16_t* rows = w.weight_rows + q.lane;
    const Range range = q.range;
    Floats product = {};
    for (int64_t key = range.low; key < range.high; key++) {
        const int64_t at = key * QUERY_BLOCK;
        Floats weights = rough_power_of_two(load(scores + at) * scale - shift), gradients = load(d_weights + at);
        if (q.count < LANES || !q.visible_to_all(key)) {
            const Ints visible = q.visible_lanes(key);
            weights = visible ? weights : Floats{}, gradients = visible ? gradients : Floats{};
        }
        Floats dropped = weights;
        if (DROPS) {
            const Ints retained = q.retained(key);
            dropped = retained ? dropped * drop_scale : Floats{},
            gradients = retained ? gradients * drop_scale : Floats{};
        }
        product += weights * gradients;
        write(rows + at, dropped);
        store(scores + at, weights), store(d_weights + at, gradients);
    }
    return product;
}

// Weights of a vector of queries as rows, and the gradients of their scores as rows and as weights:
// d_scores = weights ∘ (d_weights − Σ weights ∘ d_weights) / √d_k.
static void put_score_gradients(const QueryVector& q, const PairHead& w, const float* log_sums) {
    Floats shift = {};
    for (int i = 0; i < q.count; i++)
        if (log_sums[q.first + i] != -INFINITY) shift[i] = log_sums[q.first + i] * LOG2_E;
    const Floats product =
        q.a.threshold ? restore_weight_rows<true>(q, w, shift) : restore_weight_rows<false>(q, w, shift);
    const float scale = q.scale(), *weights = w.scores + q.lane, *d_weights = w.d_weights + q.lane;
    uint16_t* rows = w.d_score_rows + q.lane;
    auto gradient = [=](int64_t key) {
        const int64_t at = key * QUERY_BLOCK;
        const Halves result = rounded(load(weights + at) * (load(d_weights + at) - product) * scale);
        *reinterpret_cast<Halves*>(rows + at) = result;
        return result;
    };
    q.put_pairs(w.weights, [&](int64_t key) {
        const Halves first = gradient(key);
        return paired(first, gradient(key + 1));
    });
}

// Gradient of the queries of one head; adds to the gradients of keys and values.
static void attend_backward_pairs(
    const SequenceAttention& a, const VisibleKeys& visible, int64_t h, const PairHead& w, const KeyRows& keys,
    const KeyRows& values
) {
    const Rows<uint16_t> q(a.q, h), d_context(a.context_gradient, h), d_q(a.q_gradient, h);
    const NextHead<uint16_t> next_head(a, h, true);
    for (int64_t first = 0, next; first < a.queries; first = next) {
        const QueryBlock block(a, visible, first);
        next = block.end();
        for (int64_t i = first; i < next; i++) d_q.fetch(i, a.heads.d_k);
        copy_block(q, visible, block, w.k, w, w.q_units, w.q_pairs);
        copy_block(d_context, visible, block, w.v, w, w.d_context_units, w.d_context_pairs);
        next_head.fetch(first, next);
        multiply_keys(keys, w.k, w.q_units, block, w.scores);
        multiply_keys(values, w.v, w.d_context_units, block, w.d_weights);
        for (uint16_t* rows : {w.weight_rows, w.d_score_rows})
            std::fill(rows + block.keys.low * QUERY_BLOCK, rows + block.keys.high * QUERY_BLOCK, 0);
        for (int64_t i = 0; i < block.lanes; i += LANES)
            put_score_gradients({a, visible, h, block, i}, w, a.log_sums + h * a.queries);
        add_key_gradients(w.weight_rows, w.d_context_pairs, w.v, block, w.d_v);
        add_key_gradients(w.d_score_rows, w.q_pairs, w.k, block, w.d_k);
        multiply_weights(w, w.k_pairs, w.k, block);
        for (int64_t i = 0; i < block.rows; i++) put(w.results + i * w.k.stride, a.heads.d_k, d_q[first + i]);
    }
}

// Query heads that share one head of keys and values; `find` finds the keys visible to a head.
template <class Find>
static void attend_group_pairs(
    const SequenceAttention& a, int64_t kv_head, bool backward, const VisibleKeys& visible, Find find
) {
    const int64_t end = (kv_head + 1) * a.heads.group();
    const PairHead w(a, workspace<char>(ATTENTION_HEAD, PairHead(a, nullptr).bytes));
    const Rows<uint16_t> k(a.k, kv_head), v(a.v, kv_head);
    for (int64_t i = 0; i < a.keys; i++) k.fetch(i, a.heads.d_k), v.fetch(i, a.heads.d_v);
    const KeyRows keys(k, a.keys, w, w.k, w.k_copies);
    if (!backward) {
        pair_rows(v, a.keys, w.keys, w.v, w.v_pairs);
        for (int64_t h = kv_head * a.heads.group(); h < end; h++) {
            find(h);
            attend_forward_pairs(a, visible, h, w, keys);
        }
        return;
    }
    const KeyRows values(v, a.keys, w, w.v, w.v_copies);
    pair_rows(k, a.keys, w.keys, w.k, w.k_pairs);
    std::fill(w.d_k, w.d_k + w.keys * w.k.stride, 0.0f);
    std::fill(w.d_v, w.d_v + w.keys * w.v.stride, 0.0f);
    for (int64_t h = kv_head * a.heads.group(); h < end; h++) {
        find(h);
        attend_backward_pairs(a, visible, h, w, keys, values);
    }
    const Rows<uint16_t> d_k(a.k_gradient, kv_head), d_v(a.v_gradient, kv_head);
    for (int64_t i = 0; i < a.keys; i++) {
        d_k.fetch(i + ROWS_AHEAD, a.heads.d_k), d_v.fetch(i + ROWS_AHEAD, a.heads.d_v);
        put(w.d_k + i * w.k.stride, a.heads.d_k, d_k[i]), put(w.d_v + i * w.v.stride, a.heads.d_v, d_v[i]);
    }
}

static void attend_batches_pairs(const Attention& a, bool backward, int64_t heads_per_chunk) {
    parallel_for(a.threads, a.batch * a.heads.n_kv_heads, heads_per_chunk, [&](int64_t from, int64_t to) {
        thread_local VisibleKeys visible;
        int64_t found_for = -1;  // index of the sequence
        const PairRegisters registers;
        for (int64_t index = from; index < to; index++) {
            const SequenceAttention one = select_sequence<uint16_t>(a, index / a.heads.n_kv_heads);
            attend_group_pairs(one, index % a.heads.n_kv_heads, backward, visible, [&](int64_t h) {
                if (one.shares_mask(found_for)) return;
                visible.find(one, one.mask_of(h));
                found_for = one.index;
            });
        }
        visible.release_large();
    });
}
#endif
