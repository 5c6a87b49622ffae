// Equation 1 and its gradient for full sequences, on all cores, with only a few rows of scores in memory. Where
// the processor multiplies pairs of bfloat16, pair_attention.h computes those.
//
// A tile of QUERY_TILE queries reads the keys between the first and the last visible one. Keys outside this range, such
// as those of other sentences in the row or of the future, cost nothing. The backward pass recomputes the weights from
// the logarithm of their denominator (Dao et al. 2022, arXiv:2205.14135, section 3.1).
#include "api.h"
#include "attention.h"
#include "dropout.h"
#include "next_head.h"
#include "pair_attention.h"
#include "softmax.h"
#include "thread_pool.h"

// Buffers for the heads of one sequence that share keys and values. Rows and transposed rows are padded to full
// vectors.
template <class T>
struct Head {
    std::vector<float> k_transposed, v_transposed, tile;
    std::vector<T> last_k, last_v;  // columns of the last, incomplete vector
    std::vector<float> rows, results, d_k, d_v;
    std::vector<float> weights, dropped, d_weights;  // [QUERY_TILE, score_stride]
    std::vector<uint8_t> mask_rows;                  // [QUERY_TILE, score_stride]
    int64_t score_stride;
    int64_t mask_stride;  // 0 if all queries of a sequence share a mask, the first row
    VisibleRanges visible;
    int64_t visible_of;  // index of the sequence for which the ranges, and a shared mask, were found
};

// Copy one byte for each key of `range`, 1 if visible to the query. Zeros pad the last vector.
static void copy_mask_row(const SequenceAttention& a, const uint8_t* mask, int64_t query, Range range, uint8_t* to) {
    const uint8_t* row = mask + query * a.mask.query;
    if (!mask) std::fill(to + range.low, to + range.high, 1);
    else if (a.mask.key == 1) std::copy(row + range.low, row + range.high, to + range.low);
    else
        for (int64_t j = range.low; j < range.high; j++) to[j] = row[j * a.mask.key];
    std::fill(to + range.high, to + range.high + LANES, 0);
}

// Find the keys visible to a head, and copy its mask if all queries share it.
template <class T>
static void update_visible(const SequenceAttention& a, int64_t h, Head<T>& w) {
    if (!a.queries || a.shares_mask(w.visible_of)) return;
    const uint8_t* mask = a.mask_of(h);
    w.visible.find_ranges(a, mask);
    w.visible_of = a.index;
    w.mask_stride = mask && a.mask.query ? w.score_stride : 0;
    if (!w.mask_stride) copy_mask_row(a, mask, 0, w.visible.range(0, 1), w.mask_rows.data());
}

// Copy the masks of a tile of queries from i on, unless all queries share one. This precedes the products: a vector
// that is read right after its bytes were written, a few at a time, waits for them.
template <class T>
static void copy_mask_rows(const SequenceAttention& a, const uint8_t* mask, int64_t i, Range range, Head<T>& w) {
    for (int64_t t = 0; w.mask_stride && t < std::min<int64_t>(QUERY_TILE, a.queries - i); t++)
        copy_mask_row(a, mask, i + t, range, w.mask_rows.data() + t * w.mask_stride);
}

// Scaled scores from key j on, −∞ for masked keys.
static inline Floats visible_scores(const float* scores, const uint8_t* mask_row, int64_t j, float scale) {
    const Ints visible = widened(mask_row + j) != 0;
    return visible ? load(scores + j) * scale : broadcast(-INFINITY);
}

// Replace the scores of one query by weights, 0 for masked keys, and return the logarithm of their denominator.
static float normalize_scores(Range range, const uint8_t* mask_row, float scale, float* scores) {
    Floats largest = broadcast(-INFINITY);
    for (int64_t j = range.low; j < range.high; j += LANES) {
        const Floats values = visible_scores(scores, mask_row, j, scale);
        store(scores + j, values);
        largest = greater(largest, values);
    }
    const float shift = maximum(largest);
    if (shift == -INFINITY) {  // 0 if all keys are masked; NaN if all scores are −∞ or NaN
        bool any = false;
        for (int64_t j = range.low; j < range.high; j++) any |= mask_row[j] != 0, scores[j] = mask_row[j] ? NAN : 0.0f;
        return any ? NAN : shift;
    }
    return shift + std::log(softmax(scores, range.low, range.high, shift));
}

// Recompute the weights from the logarithm of their denominator.
static void restore_weights(Range range, const uint8_t* mask_row, float scale, float log_sum, float* scores) {
    const float shift = log_sum == -INFINITY ? 0.0f : log_sum;
    for (int64_t j = range.low; j < range.high; j += LANES)
        store(scores + j, exponential(visible_scores(scores, mask_row, j, scale) - shift));
}

// Dropout of one row of weights: dropped entries are 0, the others scaled.
static void drop_weights(const SequenceAttention& a, int64_t row, Range range, const float* values, float* dropped) {
    const float scale = Dropout(a.seed, a.threshold).scale;
    for (int64_t j = range.low; j < range.high; j += LANES) {
        const Ints bits = weight_bits(a.seed, row, Ints{}, lane_numbers() + static_cast<int32_t>(j));
        store(dropped + j, (bits & 255) >= a.threshold ? load(values + j) * scale : Floats{});
    }
}

// Products of a tile of queries from i on with the transposed keys of `range`; or of gradients with values.
template <class T>
static void multiply_queries(
    const Rows<T>& rows, int64_t i, int64_t count, int64_t size, const std::vector<float>& transposed, Range range,
    Head<T>& w, float* results
) {
    const int64_t stride = padded(size, LANES);
    w.tile.resize(QUERY_TILE * stride);
    copy_rows(rows, i, count, QUERY_TILE, size, stride, w.tile.data());
    multiply_qk(w.tile.data(), size, stride, transposed, w.score_stride, range.low, range.high, results);
}

template <class T>
static void attend_forward(const SequenceAttention& a, int64_t h, const T* last_v, Head<T>& w) {
    const Rows<T> q(a.q, h), v(a.v, h / a.heads.group()), context(a.context, h);
    const NextHead<T> next_head(a, h, false);
    update_visible(a, h, w);
    w.results.resize(QUERY_TILE * padded(a.heads.d_v, LANES));
    const uint8_t* mask = a.mask_of(h);
    const int64_t before = a.queries_before * a.heads.n_heads, first = h * a.queries;
    const float scale = 1.0f / std::sqrt(static_cast<float>(a.heads.d_k));
    for (int64_t i = 0; i < a.queries; i += QUERY_TILE) {
        const Range range = w.visible.range(i, std::min(i + QUERY_TILE, a.queries));
        const int64_t count = std::min<int64_t>(QUERY_TILE, a.queries - i);
        copy_mask_rows(a, mask, i, range, w);
        next_head.fetch(i, std::min(i + QUERY_TILE, a.queries));
        multiply_queries(q, i, a.queries, a.heads.d_k, w.k_transposed, range, w, w.weights.data());
        for (int64_t t = 0; t < count; t++) {
            float* weights = w.weights.data() + t * w.score_stride;
            a.log_sums[first + i + t] = normalize_scores(range, w.mask_rows.data() + t * w.mask_stride, scale, weights);
            if (a.threshold) drop_weights(a, before + first + i + t, range, weights, weights);
        }
        multiply_pv(w.weights.data(), w.score_stride, v, last_v, a.heads.d_v, range.low, range.high, w.results.data());
        put_rows(w.results.data(), i, count, a.heads.d_v, context);
    }
}

// Forward pass of the query heads that share one head of keys and values.
template <class T>
static void attend_group_forward(const SequenceAttention& a, int64_t kv_head, Head<T>& w) {
    transpose_rows(Rows<T>(a.k, kv_head), a.keys, a.heads.d_k, w.score_stride, w.k_transposed);
    const T* last_v = last_columns(Rows<T>(a.v, kv_head), a.keys, a.heads.d_v, w.last_v);
    for (int64_t i = 0; i < a.heads.group(); i++) attend_forward(a, kv_head * a.heads.group() + i, last_v, w);
}

// d_scores = weights ∘ (d_weights − Σ weights ∘ d_weights) / √d_k, in place of d_weights.
static void score_gradients(Range range, float scale, const float* weights, float* d_weights) {
    Floats products = {};
    for (int64_t j = range.low; j < range.high; j += LANES) products += load(weights + j) * load(d_weights + j);
    const float product = sum(products);
    for (int64_t j = range.low; j < range.high; j += LANES)
        store(d_weights + j, load(weights + j) * (load(d_weights + j) - product) * scale);
}

// Gradient of the queries of one head; adds to the gradients of keys and values.
template <class T>
static void attend_backward(const SequenceAttention& a, int64_t h, const T* last_k, Head<T>& w) {
    const Rows<T> q(a.q, h), k(a.k, h / a.heads.group()), d_context(a.context_gradient, h);
    const NextHead<T> next_head(a, h, true);
    const int64_t wide_k = padded(a.heads.d_k, LANES), wide_v = padded(a.heads.d_v, LANES);
    update_visible(a, h, w);
    w.results.resize(QUERY_TILE * wide_k), w.rows.resize(QUERY_TILE * std::max(wide_k, wide_v));
    const uint8_t* mask = a.mask_of(h);
    const int64_t before = a.queries_before * a.heads.n_heads, first = h * a.queries;
    const float scale = 1.0f / std::sqrt(static_cast<float>(a.heads.d_k));
    for (int64_t i = 0; i < a.queries; i += QUERY_TILE) {
        const Range range = w.visible.range(i, std::min(i + QUERY_TILE, a.queries));
        copy_mask_rows(a, mask, i, range, w);
        next_head.fetch(i, std::min(i + QUERY_TILE, a.queries));
        multiply_queries(q, i, a.queries, a.heads.d_k, w.k_transposed, range, w, w.weights.data());
        multiply_queries(d_context, i, a.queries, a.heads.d_v, w.v_transposed, range, w, w.d_weights.data());
        for (int64_t t = 0; t < QUERY_TILE; t++) {
            float *weights = w.weights.data() + t * w.score_stride, *dropped = w.dropped.data() + t * w.score_stride;
            float* d_weights = w.d_weights.data() + t * w.score_stride;
            if (i + t >= a.queries) {
                for (float* row : {weights, dropped, d_weights}) std::fill(row + range.low, row + range.high, 0.0f);
                continue;
            }
            restore_weights(range, w.mask_rows.data() + t * w.mask_stride, scale, a.log_sums[first + i + t], weights);
            if (a.threshold) {
                drop_weights(a, before + first + i + t, range, weights, dropped);
                drop_weights(a, before + first + i + t, range, d_weights, d_weights);
            }
            score_gradients(range, scale, weights, d_weights);
        }
        const auto& dropped = a.threshold ? w.dropped : w.weights;
        copy_rows(d_context, i, a.queries, QUERY_TILE, a.heads.d_v, wide_v, w.rows.data());
        rank_k_update(dropped.data(), w.score_stride, w.rows.data(), a.heads.d_v, range.low, range.high, w.d_v.data());
        copy_rows(q, i, a.queries, QUERY_TILE, a.heads.d_k, wide_k, w.rows.data());
        rank_k_update(
            w.d_weights.data(), w.score_stride, w.rows.data(), a.heads.d_k, range.low, range.high, w.d_k.data()
        );
        multiply_pv(
            w.d_weights.data(), w.score_stride, k, last_k, a.heads.d_k, range.low, range.high, w.results.data()
        );
        put_rows(
            w.results.data(), i, std::min<int64_t>(QUERY_TILE, a.queries - i), a.heads.d_k, Rows<T>(a.q_gradient, h)
        );
    }
}

template <class T>
static void attend_group_backward(const SequenceAttention& a, int64_t kv_head, Head<T>& w) {
    const Rows<T> k(a.k, kv_head), v(a.v, kv_head);
    transpose_rows(k, a.keys, a.heads.d_k, w.score_stride, w.k_transposed);
    transpose_rows(v, a.keys, a.heads.d_v, w.score_stride, w.v_transposed);
    const T* last_k = last_columns(k, a.keys, a.heads.d_k, w.last_k);
    w.d_k.assign(a.keys * padded(a.heads.d_k, LANES), 0.0f), w.d_v.assign(a.keys * padded(a.heads.d_v, LANES), 0.0f);
    for (int64_t i = 0; i < a.heads.group(); i++) attend_backward(a, kv_head * a.heads.group() + i, last_k, w);
    put_rows(w.d_k.data(), 0, a.keys, a.heads.d_k, Rows<T>(a.k_gradient, kv_head));
    put_rows(w.d_v.data(), 0, a.keys, a.heads.d_v, Rows<T>(a.v_gradient, kv_head));
}

template <class T>
static void attend_batches_in_tiles(const Attention& a, bool backward, int64_t heads_per_chunk) {
    static std::atomic<int64_t> calls{0};
    const int64_t call = ++calls;
    parallel_for(a.threads, a.batch * a.heads.n_kv_heads, heads_per_chunk, [&](int64_t from, int64_t to) {
        thread_local Head<T> work;
        thread_local int64_t prepared_for = 0;
        if (prepared_for != call) {
            work.score_stride = padded(a.keys, LANES) + LANES, work.visible_of = -1;
            work.mask_rows.resize(QUERY_TILE * work.score_stride);
            for (auto* rows : {&work.weights, &work.dropped, &work.d_weights})
                rows->assign(QUERY_TILE * work.score_stride, 0.0f);
            prepared_for = call;
        }
        for (int64_t index = from; index < to; index++) {
            const int64_t kv_head = index % a.heads.n_kv_heads;
            const SequenceAttention one = select_sequence<T>(a, index / a.heads.n_kv_heads);
            if (backward) attend_group_backward<T>(one, kv_head, work);
            else attend_group_forward<T>(one, kv_head, work);
        }
    });
}

// Attention of all sequences: of bfloat16 with instructions for pairs, if the processor has them.
template <class T>
void attend_batches(const Attention& a, bool backward) {
    const int64_t heads_per_chunk = has_many_sequences(a) ? std::max<int64_t>(1, a.heads.n_kv_heads) : 1;
#if HAS_BFLOAT16
    if constexpr (std::is_same<T, uint16_t>::value) attend_batches_pairs(a, backward, heads_per_chunk);
    else
#endif
        attend_batches_in_tiles<T>(a, backward, heads_per_chunk);
}

template void attend_batches<float>(const Attention&, bool);
template void attend_batches<uint16_t>(const Attention&, bool);

API int32_t full_attention(const Attention* attention, int32_t backward) {
    return guarded([&] {
        if (attention->bfloat16) attend_batches<uint16_t>(*attention, backward);
        else attend_batches<float>(*attention, backward);
    });
}
