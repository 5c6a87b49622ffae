// Equation 1 and its gradient for full sequences, on all cores, with only a few rows of scores in memory: in float32,
// and in bfloat16 with instructions for pairs; processors without them convert bfloat16 to float32.
//
// Scores are computed as keys × queries, at most QUERY_BLOCK queries at a time: lanes of vectors are queries, so
// softmax needs no sum across lanes, and rows of weights are the operands of the gradients of keys and values. In pairs
// weights and gradients of scores are rounded to bfloat16. A block reads the keys from the first to the last that are
// visible to it, and with AMX those of full tiles; hidden ones among them have the weight 0, so that their NaN reaches all queries of
// a block. Keys outside this range, such as those of other sentences in the row or of the future, cost nothing. The
// backward pass recomputes the weights from the logarithm of their denominator (Dao et al. 2022, arXiv:2205.14135,
// section 3.1).
#pragma once
#include "attention_operands.h"
#include "dropout.h"

// Products of the visible keys, or of their values, with a block of queries: to[key][query].
template <class Unit>
static void multiply_keys(
    const KeyOperands<Unit>& keys, const HeadWidth<Unit>& width, const Unit* units, const QueryBlock<Unit>& block,
    float* to
) {
    const int64_t low = block.keys.low, high = std::min(block.keys.high, keys.count);
    OperandOf<Unit> a = keys.rows;
    a.data += low * a.across;
    const ColumnsOf<Unit> b = {units, QUERY_BLOCK};
    multiply_units<false>(a, high - low, b, block.lanes, width.steps, to + low * QUERY_BLOCK, QUERY_BLOCK);
}

// to[query] = Σ over the visible keys of weights · columns.
template <class Unit>
static void multiply_weights(
    const Unit* weights, ColumnsOf<Unit> columns, const HeadWidth<Unit>& width, const QueryBlock<Unit>& block, float* to
) {
    typedef Granularity<Unit> Grain;
    const auto [low, high] = block.keys;
    columns.data += low / Grain::ENTRIES * columns.stride;
    multiply_units<false>(
        weights_at(weights, low), padded(block.rows, Grain::ROWS), columns, width.columns,
        (high - low) / Grain::ENTRIES, to, width.stride
    );
}

// to[key] += Σ over a block of queries of rows · columns.
template <class Number, class Unit>
static void add_key_gradients(
    const Number* rows, const Unit* columns, const HeadWidth<Unit>& width, const QueryBlock<Unit>& block, float* to
) {
    const auto [low, high] = block.keys;
    const int64_t stride = QUERY_BLOCK / Granularity<Unit>::ENTRIES;
    const auto units = adjacent_steps(reinterpret_cast<const Unit*>(rows) + low * stride, stride);
    const ColumnsOf<Unit> b = {columns, width.stride};
    multiply_units<true>(
        units, high - low, b, width.columns, steps_of_numbers<Unit>(block.rows), to + low * width.stride, width.stride
    );
}

// At most LANES queries of a block, from the one at `lane` on.
template <class T>
struct QueryVector {
    typedef AttentionUnit<T> Unit;
    const Attention& a;
    const VisibleKeys& visible;
    const QueryBlock<Unit>& block;
    int64_t lane, first, count;  // first query, number of queries
    int64_t row;                 // of the dropout
    Range range, of_all;         // keys visible to any query, in units, and to all
    Ints used;                   // −1 in the lanes of queries, 0 in the others

    QueryVector(const Attention& a, const VisibleKeys& visible, int64_t h, const QueryBlock<Unit>& block, int64_t lane)
        : a(a), visible(visible), block(block), lane(lane), first(block.first + lane),
          count(std::clamp<int64_t>(block.rows - lane, 0, LANES)),
          row(a.queries_before * a.heads + h * a.queries + first), range(visible.range(first, first + count)),
          of_all(visible.range_of_all(first, first + count)) {
        enum { ENTRIES = Granularity<Unit>::ENTRIES };
        range = {range.low / ENTRIES * ENTRIES, padded(range.high, ENTRIES)};
        used = lane_numbers() < static_cast<int32_t>(count);
    }

    // Factor of the scores: in float32 the queries are multiplied by it. A product that is rounded in one pass and fused
    // with a difference in the other would give large scores other weights in the backward pass than in the forward one.
    float scale() const { return Granularity<Unit>::ENTRIES == 1 ? 1.0f : a.scale(); }

    // The values of the queries to which the key is visible; `hidden` for the others.
    Floats visible_values(int64_t key, Floats values, Floats hidden) const {
        const bool to_all = key >= of_all.low && key < of_all.high;
        return (to_all ? used : used & visible.lanes(first, key)) ? values : hidden;
    }

    static Ints lane_numbers() {
        Ints lane;
        for (int i = 0; i < LANES; i++) lane[i] = i;
        return lane;
    }

    // −1 for weights that dropout keeps.
    Ints retained(int64_t key) const { return (weight_bits(a.seed, row, lane_numbers(), key) & 255) >= a.threshold; }

    // Write the values of each key of the block; 0 outside the range.
    template <class Values>
    void put(Unit* to, Values values) const {
        put_weight_units(block.keys.low, block.keys.high, lane, to, [&](int64_t key) {
            return key >= range.low && key < range.high ? unit_of<Unit>(key, values) : Floats{};
        });
    }

    // Set the rows of the keys of the block outside the range to 0.
    template <class Number>
    void clear_rows(Number* rows) const {
        for (int64_t key = block.keys.low; key < block.keys.high; key++)
            if (key < range.low || key >= range.high) write(rows + key * QUERY_BLOCK + lane, Floats{});
    }
};

// Weights of a vector of queries, times their denominators. Sets the logarithms of the denominators; returns the
// factors of the contexts.
template <class T>
static Floats put_weights(const QueryVector<T>& q, const Head<T>& w, float* log_sums) {
    const float scale = q.scale(), *scores = w.scores + q.lane;
    Floats largest = broadcast(-INFINITY), total = {};
    for (int64_t key = q.range.low; key < q.range.high; key++) {
        const Floats values = load(scores + key * QUERY_BLOCK) * scale;
        largest = greater(largest, q.visible_values(key, values, broadcast(-INFINITY)));
    }
    q.put(w.weights, [&](int64_t key) {
        const Floats values = exponential(load(scores + key * QUERY_BLOCK) * scale - largest);
        const Floats weights = q.visible_values(key, values, Floats{});
        total += weights;
        return q.a.threshold ? (q.retained(key) ? weights : Floats{}) : weights;
    });
    const Floats results = largest + logarithm(total);  // −∞ if all keys are masked
    for (int i = 0; i < q.count; i++) log_sums[q.first + i] = results[i];
    return total == 0.0f ? Floats{} : 256.0f / (256 - q.a.threshold) / total;
}

static inline void multiply_row(float* row, int64_t size, float factor) {
    for (int64_t d = 0; d < size; d += LANES) store(row + d, load(row + d) * factor);
}

template <class T>
static void attend_forward(
    const Attention& a, const VisibleKeys& visible, int64_t h, const Head<T>& w, const KeyOperands<AttentionUnit<T>>& k,
    const KeyOperands<AttentionUnit<T>>& v
) {
    const Rows<T> q(a.q, h), context(a.context, h);
    for (int64_t first = 0, next; first < a.queries; first = next) {
        const QueryBlock<AttentionUnit<T>> block(a, visible, first);
        next = block.end();
        copy_block<T>(q, visible, block, w.k, a.scale(), w, w.q_units, nullptr);
        multiply_keys(k, w.k, w.q_units, block, w.scores);
        alignas(64) float factors[QUERY_BLOCK];
        for (int64_t i = 0; i < block.lanes; i += LANES)
            store(factors + i, put_weights<T>({a, visible, h, block, i}, w, a.log_sums + h * a.queries));
        multiply_weights(w.weights, v.columns, w.v, block, w.results);
        for (int64_t i = 0; i < block.rows; i++) {
            float* row = w.results + i * w.v.stride;
            multiply_row(row, w.v.columns, factors[i]);
            put(row, a.d_v, context[first + i]);
        }
    }
}

// Weights of a vector of queries as rows, and the gradients of their scores as rows and as weights:
// d_scores = weights ∘ (d_weights − Σ weights ∘ d_weights) / √d_k.
template <class T>
static void put_score_gradients(const QueryVector<T>& q, const Head<T>& w, const float* log_sums) {
    enum { SINGLE = Head<T>::Grain::ENTRIES == 1 };
    const int64_t lane = q.lane;
    const float scale = q.scale(), drop_scale = 256.0f / (256 - q.a.threshold);
    float *scores = w.scores + lane, *d_weights = w.d_weights + lane;
    Floats shift = {}, product = {};
    for (int i = 0; i < q.count; i++)
        if (log_sums[q.first + i] != -INFINITY) shift[i] = log_sums[q.first + i];
    for (int64_t key = q.range.low; key < q.range.high; key++) {
        const int64_t at = key * QUERY_BLOCK;
        const Floats weights = q.visible_values(key, exponential(load(scores + at) * scale - shift), Floats{});
        Floats dropped = weights, gradients = q.visible_values(key, load(d_weights + at), Floats{});
        if (q.a.threshold) {
            const Ints retained = q.retained(key);
            dropped = retained ? dropped * drop_scale : Floats{},
            gradients = retained ? gradients * drop_scale : Floats{};
        }
        product += weights * gradients;
        store(scores + at, weights), store(d_weights + at, gradients);
        if (!SINGLE || q.a.threshold) write(w.weight_rows + at + lane, dropped);
    }
    q.clear_rows(w.weight_rows);
    if (!SINGLE) q.clear_rows(w.d_score_rows);
    q.put(w.d_scores, [&](int64_t key) {
        const int64_t at = key * QUERY_BLOCK;
        const Floats d_scores = load(scores + at) * (load(d_weights + at) - product) * scale;
        if (!SINGLE) write(w.d_score_rows + at + lane, d_scores);
        return d_scores;
    });
}

// Gradient of the queries of one head; adds to the gradients of keys and values.
template <class T>
static void attend_backward(
    const Attention& a, const VisibleKeys& visible, int64_t h, const Head<T>& w, const KeyOperands<AttentionUnit<T>>& k,
    const KeyOperands<AttentionUnit<T>>& v
) {
    enum { SINGLE = Head<T>::Grain::ENTRIES == 1 };
    const Rows<T> q(a.q, h), d_context(a.d_context, h), d_q(a.d_q, h);
    for (int64_t first = 0, next; first < a.queries; first = next) {
        const QueryBlock<AttentionUnit<T>> block(a, visible, first);
        next = block.end();
        copy_block<T>(q, visible, block, w.k, a.scale(), w, w.q_units, w.q_columns);
        copy_block<T>(d_context, visible, block, w.v, 1.0f, w, w.d_context_units, w.d_context_columns);
        multiply_keys(k, w.k, w.q_units, block, w.scores);
        multiply_keys(v, w.v, w.d_context_units, block, w.d_weights);
        for (int64_t i = 0; i < block.lanes; i += LANES)
            put_score_gradients<T>({a, visible, h, block, i}, w, a.log_sums + h * a.queries);
        add_key_gradients(w.weight_rows, w.d_context_columns, w.v, block, w.d_v);
        add_key_gradients(w.d_score_rows, w.q_columns, w.k, block, w.d_k);
        multiply_weights(w.d_scores, k.columns, w.k, block, w.results);
        for (int64_t i = 0; i < block.rows; i++) {
            float* row = w.results + i * w.k.stride;
            if (SINGLE) multiply_row(row, w.k.columns, a.scale());
            put(row, a.d_k, d_q[first + i]);
        }
    }
}

// Query heads that share one head of keys and values; `find` finds the keys visible to a head.
template <class T, class Find>
static void attend_group(const Attention& a, int64_t kv_head, bool backward, const VisibleKeys& visible, Find find) {
    const Head<T> w(a, workspace<char>(ATTENTION_HEAD, Head<T>(a, nullptr).bytes));
    const Rows<T> k(a.k, kv_head), v(a.v, kv_head);
    for (int64_t i = 0; i < a.keys; i++) k.fetch(i, a.d_k), v.fetch(i, a.d_v);
    const auto keys = key_operands(a, k, w.k, w.k_copies, w.k_columns, true, backward);
    const auto values = key_operands(a, v, w.v, w.v_copies, w.v_columns, backward, !backward);
    if (backward) {
        std::fill(w.d_k, w.d_k + w.keys * w.k.stride, 0.0f);
        std::fill(w.d_v, w.d_v + w.keys * w.v.stride, 0.0f);
    }
    for (int64_t h = kv_head * a.group(); h < (kv_head + 1) * a.group(); h++) {
        find(h);
        if (backward) attend_backward(a, visible, h, w, keys, values);
        else attend_forward(a, visible, h, w, keys, values);
    }
    if (!backward) return;
    const Rows<T> d_k(a.d_k_, kv_head), d_v(a.d_v_, kv_head);
    for (int64_t i = 0; i < a.keys; i++)
        put(w.d_k + i * w.k.stride, a.d_k, d_k[i]), put(w.d_v + i * w.v.stride, a.d_v, d_v[i]);
}

// Attention of all sequences. A thread finds the visible keys of a sequence once, unless heads have masks of their own.
template <class T>
static void attend_batches(const Attention& a, bool backward) {
    static std::atomic<int64_t> calls{0};
    const int64_t call = ++calls;
    // Heads of a sequence are adjacent in memory: with enough sequences, one thread computes all heads of one.
    const int64_t heads_per_chunk = a.batch < 4 * a.threads ? 1 : std::max<int64_t>(1, a.kv_heads);
    parallel_for(a.threads, a.batch * a.kv_heads, heads_per_chunk, [&](int64_t from, int64_t to) {
        thread_local VisibleKeys visible;
        thread_local int64_t found_in_call = 0, found_for = 0;
        const ProductRegisters<AttentionUnit<T>> registers;
        for (int64_t index = from; index < to; index++) {
            const int64_t b = index / a.kv_heads;
            const Attention one = select_batch<T>(a, b);
            attend_group<T>(one, index % a.kv_heads, backward, visible, [&](int64_t h) {
                if (found_in_call == call && found_for == b && a.mask_head == 0) return;
                visible.find(one, mask_of(one, h));
                found_in_call = call, found_for = b;
            });
        }
        if (visible.release_large()) found_in_call = 0;
    });
}
