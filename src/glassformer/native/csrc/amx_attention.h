// Attention over full sequences in bfloat16, with the matrix instructions of AMX.
//
// Scores are computed as keys × queries, QUERY_BLOCK queries at a time: lanes of vectors are queries, so softmax needs
// no sum across lanes, and rows of weights are the operands of the gradients of keys and values.
#pragma once
#include "gemm.h"
#include "visible_keys.h"
#if HAS_AMX
#include "dropout.h"

// Buffers for one head of keys and values and a block of queries; keys and widths are padded to QUERY_BLOCK. In pairs
// two neighboring rows are interleaved, in transposed units rows are columns.
struct AmxHead {
    int64_t keys, wide_k, wide_v;
    Pair *k_rows, *v_rows;                 // [keys, wide / 2]
    Pair *k_pairs, *v_pairs;               // [keys / 2, wide]
    Pair* rows;                            // [QUERY_BLOCK, wide / 2]
    Pair *q_units, *d_context_units;       // [wide / 2, QUERY_BLOCK]
    Pair *q_pairs, *d_context_pairs;       // [QUERY_BLOCK / 2, wide]
    float *scores, *d_weights;             // [keys, QUERY_BLOCK]
    uint16_t *weight_rows, *d_score_rows;  // [keys, QUERY_BLOCK]
    Pair* tiles;                           // [keys / 32, QUERY_BLOCK, AMX_SIDE]: queries × pairs of keys
    float *results, *d_k, *d_v;            // [QUERY_BLOCK, wide], [keys, wide]
    int64_t bytes;

    // `memory` is null for `bytes` alone.
    AmxHead(const Attention& a, char* memory)
        : keys(padded(a.keys, QUERY_BLOCK)), wide_k(padded(a.d_k, QUERY_BLOCK)), wide_v(padded(a.d_v, QUERY_BLOCK)) {
        Arena arena{memory};
        const int64_t wide = std::max(wide_k, wide_v);
        for (auto pointer : {&k_rows, &k_pairs}) *pointer = arena.next<Pair>(keys * wide_k / 2);
        for (auto pointer : {&v_rows, &v_pairs}) *pointer = arena.next<Pair>(keys * wide_v / 2);
        rows = arena.next<Pair>(QUERY_BLOCK * wide / 2);
        for (auto pointer : {&q_units, &q_pairs}) *pointer = arena.next<Pair>(QUERY_BLOCK * wide_k / 2);
        for (auto pointer : {&d_context_units, &d_context_pairs}) *pointer = arena.next<Pair>(QUERY_BLOCK * wide_v / 2);
        for (auto pointer : {&scores, &d_weights}) *pointer = arena.next<float>(keys * QUERY_BLOCK);
        for (auto pointer : {&weight_rows, &d_score_rows}) *pointer = arena.next<uint16_t>(keys * QUERY_BLOCK);
        tiles = arena.next<Pair>(keys * AMX_SIDE);
        results = arena.next<float>(QUERY_BLOCK * wide);
        d_k = arena.next<float>(keys * wide_k), d_v = arena.next<float>(keys * wide_v);
        bytes = arena.at - memory;
    }
};

// to [32, 32] = a [32, 16 · count] · b [16 · count, 32], in pairs; with ADD, added to `to`. Rows of a have the distance
// `across`, its tiles of steps the distance `along`.
template <bool ADD>
static inline void multiply_square(
    OperandOf<Pair> a, const Pair* b, int64_t b_stride, int64_t count, float* to, int64_t to_stride
) {
    const int64_t row = to_stride * sizeof(float);
    float* below = to + AMX_SIDE * to_stride;
    compiler_barrier();
    if (ADD) {
        _tile_loadd(0, to, row);
        _tile_loadd(1, to + AMX_SIDE, row);
        _tile_loadd(2, below, row);
        _tile_loadd(3, below + AMX_SIDE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < count; i++, a.data += a.along, b += AMX_SIDE * b_stride) {
        _tile_loadd(6, b, b_stride * sizeof(Pair));
        _tile_loadd(4, a.data, a.across * sizeof(Pair));
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + AMX_SIDE, b_stride * sizeof(Pair));
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a.data + AMX_SIDE * a.across, a.across * sizeof(Pair));
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, row);
    _tile_stored(1, to + AMX_SIDE, row);
    _tile_stored(2, below, row);
    _tile_stored(3, below + AMX_SIDE, row);
    compiler_barrier();
}

// Interleave neighboring rows: to[row / 2][column].
static void pair_rows(const Pair* rows, int64_t count, int64_t wide, Pair* to) {
    const auto halves = reinterpret_cast<const uint16_t*>(rows);
    for (int64_t i = 0; i < count; i += 2, to += wide) interleave(halves + i * wide, halves + (i + 1) * wide, wide, to);
}

// Copy rows that `used(row)` accepts, up to `count`; the others are 0.
template <class Used>
static void copy_used_rows(
    const Rows<uint16_t>& from, int64_t first, int64_t count, int64_t size, int64_t wide, Pair* to, Used used
) {
    for (int64_t i = first; i < first + count; i++, to += wide / 2) {
        if (used(i)) copy_row(from[i], size, wide / 2, to);
        else std::fill(to, to + wide / 2, Pair{});
    }
}

// Copy a block of queries, or of gradients of contexts, transposed and, if `pairs` is not null, in pairs.
static void copy_block(
    const Rows<uint16_t>& from, const VisibleKeys& visible, int64_t first, int64_t size, int64_t wide, const AmxHead& w,
    Pair* units, Pair* pairs
) {
    copy_used_rows(from, first, QUERY_BLOCK, size, wide, w.rows, [&](int64_t i) { return visible.any(i); });
    for (int64_t unit = 0; unit < wide / 2; unit += LANES)
        for (int64_t i = 0; i < QUERY_BLOCK; i += LANES)
            transpose_square(
                reinterpret_cast<const float*>(w.rows + i * wide / 2 + unit), wide / 2,
                reinterpret_cast<float*>(units + unit * QUERY_BLOCK + i), QUERY_BLOCK
            );
    if (pairs) pair_rows(w.rows, QUERY_BLOCK, wide, pairs);
}

// Products of keys or values in `range` with a block of queries: to[key][query].
static void multiply_keys(const Pair* rows, int64_t wide, const Pair* units, Range range, float* to) {
    for (int64_t key = range.low; key < range.high; key += QUERY_BLOCK)
        multiply_square<false>(
            {rows + key * wide / 2, wide / 2, AMX_SIDE}, units, QUERY_BLOCK, wide / QUERY_BLOCK, to + key * QUERY_BLOCK,
            QUERY_BLOCK
        );
}

// results[query] = Σ over keys in `range` of tiles · pairs.
static void multiply_weights(const AmxHead& w, const Pair* pairs, int64_t wide, Range range) {
    const OperandOf<Pair> weights = {w.tiles + range.low * AMX_SIDE, AMX_SIDE, QUERY_BLOCK * AMX_SIDE};
    for (int64_t d = 0; d < wide; d += QUERY_BLOCK)
        multiply_square<false>(
            weights, pairs + range.low / 2 * wide + d, wide, (range.high - range.low) / QUERY_BLOCK, w.results + d, wide
        );
}

// to[key] += Σ over a block of queries of rows · pairs.
static void add_key_gradients(const uint16_t* rows, const Pair* pairs, int64_t wide, Range range, float* to) {
    for (int64_t key = range.low; key < range.high; key += QUERY_BLOCK)
        for (int64_t d = 0; d < wide; d += QUERY_BLOCK)
            multiply_square<true>(
                {reinterpret_cast<const Pair*>(rows + key * QUERY_BLOCK), AMX_SIDE, 0}, pairs + d, wide, 1,
                to + key * wide + d, wide
            );
}

// A vector of LANES queries of one head, from `first` on in its sequence.
struct QueryVector {
    const Attention& a;
    const VisibleKeys& visible;
    int64_t first, row;  // row: of the dropout
    Range range;         // of visible keys, in pairs

    QueryVector(const Attention& a, const VisibleKeys& visible, int64_t h, int64_t first)
        : a(a), visible(visible), first(first), row(a.queries_before * a.heads + h * a.queries + first),
          range(visible.range(first, first + LANES)) {
        range = {range.low / 2 * 2, padded(range.high, 2)};
    }

    float scale() const { return 1.0f / std::sqrt(static_cast<float>(a.d_k)); }

    // −1 for weights that dropout keeps.
    Ints retained(int64_t key) const {
        Ints lane;
        for (int i = 0; i < LANES; i++) lane[i] = i;
        return (weight_bits(a.seed, row, lane, key) & 255) >= a.threshold;
    }

    // Write weights(key), of a key and the next one, as tiles of queries × pairs of keys; 0 outside the range.
    template <class Weights>
    void put_tiles(Range all, Pair* tiles, Weights weights) const {
        alignas(64) Pair pairs[AMX_SIDE * LANES];
        for (int64_t key = all.low; key < all.high; key += 2 * AMX_SIDE) {
            for (int64_t pair = 0; pair < AMX_SIDE; pair++) {
                const int64_t at = key + 2 * pair;
                const bool used = at >= range.low && at < range.high;
                store(reinterpret_cast<int32_t*>(pairs + pair * LANES), used ? weights(at) : Ints{});
            }
            transpose_square(
                reinterpret_cast<const float*>(pairs), LANES,
                reinterpret_cast<float*>(tiles + key * AMX_SIDE + first % QUERY_BLOCK * AMX_SIDE), AMX_SIDE
            );
        }
    }
};

static Range in_blocks(Range range) { return {range.low / QUERY_BLOCK * QUERY_BLOCK, padded(range.high, QUERY_BLOCK)}; }

// Weights of a vector of queries, times their denominators, as tiles. Sets the logarithms of the denominators; returns
// the factors of the contexts.
static Floats put_weights(const QueryVector& q, const AmxHead& w, Range all, float* log_sums) {
    const float scale = q.scale(), *scores = w.scores + q.first % QUERY_BLOCK;
    Floats largest = broadcast(-INFINITY), total = {};
    for (int64_t key = q.range.low; key < q.range.high; key++) {
        const Floats values = load(scores + key * QUERY_BLOCK) * scale;
        largest = greater(largest, q.visible.lanes(q.first, key) ? values : broadcast(-INFINITY));
    }
    auto weight = [&](int64_t key) {
        const Floats values = exponential(load(scores + key * QUERY_BLOCK) * scale - largest);
        const Floats weights = q.visible.lanes(q.first, key) ? values : Floats{};
        total += weights;
        return rounded_bits(q.a.threshold ? (q.retained(key) ? weights : Floats{}) : weights);
    };
    q.put_tiles(all, w.tiles, [&](int64_t key) {
        const Ints upper = weight(key);
        return upper | weight(key + 1) << 16;
    });
    const Floats results = largest + logarithm(total);  // −∞ if all keys are masked
    for (int i = 0; i < LANES && q.first + i < q.a.queries; i++) log_sums[q.first + i] = results[i];
    return total == 0.0f ? Floats{} : 256.0f / (256 - q.a.threshold) / total;
}

static void attend_forward_amx(const Attention& a, const VisibleKeys& visible, int64_t h, const AmxHead& w) {
    const Rows<uint16_t> q(a.q, h), context(a.context, h);
    for (int64_t first = 0; first < a.queries; first += QUERY_BLOCK) {
        const Range range = in_blocks(visible.range(first, first + QUERY_BLOCK));
        copy_block(q, visible, first, a.d_k, w.wide_k, w, w.q_units, nullptr);
        multiply_keys(w.k_rows, w.wide_k, w.q_units, range, w.scores);
        alignas(64) float factors[QUERY_BLOCK];
        for (int64_t i = 0; i < QUERY_BLOCK; i += LANES)
            store(factors + i, put_weights({a, visible, h, first + i}, w, range, a.log_sums + h * a.queries));
        multiply_weights(w, w.v_pairs, w.wide_v, range);
        for (int64_t i = 0; i < QUERY_BLOCK && first + i < a.queries; i++) {
            float* row = w.results + i * w.wide_v;
            for (int64_t d = 0; d < w.wide_v; d += LANES) store(row + d, load(row + d) * factors[i]);
            put(row, a.d_v, context[first + i]);
        }
    }
}

// Weights of a vector of queries as rows, and the gradients of their scores as rows and tiles:
// d_scores = weights ∘ (d_weights − Σ weights ∘ d_weights) / √d_k.
static void put_score_gradients(const QueryVector& q, const AmxHead& w, Range all, const float* log_sums) {
    const int64_t lane = q.first % QUERY_BLOCK;
    const float scale = q.scale(), drop_scale = 256.0f / (256 - q.a.threshold);
    float *scores = w.scores + lane, *d_weights = w.d_weights + lane;
    Floats shift = {}, product = {};
    for (int i = 0; i < LANES && q.first + i < q.a.queries; i++)
        if (log_sums[q.first + i] != -INFINITY) shift[i] = log_sums[q.first + i];
    for (int64_t key = q.range.low; key < q.range.high; key++) {
        const int64_t at = key * QUERY_BLOCK;
        const Ints visible = q.visible.lanes(q.first, key);
        const Floats weights = visible ? exponential(load(scores + at) * scale - shift) : Floats{};
        Floats dropped = weights, gradients = visible ? load(d_weights + at) : Floats{};
        if (q.a.threshold) {
            const Ints retained = q.retained(key);
            dropped = retained ? dropped * drop_scale : Floats{},
            gradients = retained ? gradients * drop_scale : Floats{};
        }
        product += weights * gradients;
        write(w.weight_rows + at + lane, dropped);
        store(scores + at, weights), store(d_weights + at, gradients);
    }
    auto gradient = [&](int64_t key) {
        const int64_t at = key * QUERY_BLOCK;
        const Ints bits = rounded_bits(load(scores + at) * (load(d_weights + at) - product) * scale);
        *reinterpret_cast<Halves*>(w.d_score_rows + at + lane) = __builtin_convertvector(bits, Halves);
        return bits;
    };
    q.put_tiles(all, w.tiles, [&](int64_t key) {
        const Ints upper = gradient(key);
        return upper | gradient(key + 1) << 16;
    });
}

// Gradient of the queries of one head; adds to the gradients of keys and values.
static void attend_backward_amx(const Attention& a, const VisibleKeys& visible, int64_t h, const AmxHead& w) {
    const Rows<uint16_t> q(a.q, h), d_context(a.d_context, h), d_q(a.d_q, h);
    for (int64_t first = 0; first < a.queries; first += QUERY_BLOCK) {
        const Range range = in_blocks(visible.range(first, first + QUERY_BLOCK));
        copy_block(q, visible, first, a.d_k, w.wide_k, w, w.q_units, w.q_pairs);
        copy_block(d_context, visible, first, a.d_v, w.wide_v, w, w.d_context_units, w.d_context_pairs);
        multiply_keys(w.k_rows, w.wide_k, w.q_units, range, w.scores);
        multiply_keys(w.v_rows, w.wide_v, w.d_context_units, range, w.d_weights);
        for (uint16_t* rows : {w.weight_rows, w.d_score_rows})
            std::fill(rows + range.low * QUERY_BLOCK, rows + range.high * QUERY_BLOCK, 0);
        for (int64_t i = 0; i < QUERY_BLOCK; i += LANES)
            put_score_gradients({a, visible, h, first + i}, w, range, a.log_sums + h * a.queries);
        add_key_gradients(w.weight_rows, w.d_context_pairs, w.wide_v, range, w.d_v);
        add_key_gradients(w.d_score_rows, w.q_pairs, w.wide_k, range, w.d_k);
        multiply_weights(w, w.k_pairs, w.wide_k, range);
        for (int64_t i = 0; i < QUERY_BLOCK && first + i < a.queries; i++)
            put(w.results + i * w.wide_k, a.d_k, d_q[first + i]);
    }
}

// Query heads that share one head of keys and values; `find` finds the keys visible to a head.
template <class Find>
static void attend_group_amx(
    const Attention& a, int64_t kv_head, bool backward, const VisibleKeys& visible, Find find
) {
    const AmxHead w(a, workspace<char>(ATTENTION_HEAD, AmxHead(a, nullptr).bytes));
    auto used = [&](int64_t key) { return key < a.keys; };
    copy_used_rows(Rows<uint16_t>(a.k, kv_head), 0, w.keys, a.d_k, w.wide_k, w.k_rows, used);
    copy_used_rows(Rows<uint16_t>(a.v, kv_head), 0, w.keys, a.d_v, w.wide_v, w.v_rows, used);
    if (!backward) pair_rows(w.v_rows, w.keys, w.wide_v, w.v_pairs);
    else pair_rows(w.k_rows, w.keys, w.wide_k, w.k_pairs);
    std::fill(w.d_k, w.d_k + backward * w.keys * w.wide_k, 0.0f);
    std::fill(w.d_v, w.d_v + backward * w.keys * w.wide_v, 0.0f);
    for (int64_t h = kv_head * a.group(); h < (kv_head + 1) * a.group(); h++) {
        find(h);
        if (backward) attend_backward_amx(a, visible, h, w);
        else attend_forward_amx(a, visible, h, w);
    }
    const Rows<uint16_t> d_k(a.d_k_, kv_head), d_v(a.d_v_, kv_head);
    for (int64_t i = 0; backward && i < a.keys; i++)
        put(w.d_k + i * w.wide_k, a.d_k, d_k[i]), put(w.d_v + i * w.wide_v, a.d_v, d_v[i]);
}

static void attend_batches_amx(const Attention& a, bool backward, int64_t heads_per_chunk) {
    parallel_for(a.threads, a.batch * a.kv_heads, heads_per_chunk, [&](int64_t from, int64_t to) {
        thread_local VisibleKeys visible;
        int64_t found_for = -1;
        configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
        for (int64_t index = from; index < to; index++) {
            const int64_t b = index / a.kv_heads;
            const Attention one = select_batch<uint16_t>(a, b);
            attend_group_amx(one, index % a.kv_heads, backward, visible, [&](int64_t h) {
                if (found_for == b && a.mask_head == 0) return;
                visible.find(one, mask_of(one, h));
                found_for = b;
            });
        }
        _tile_release();
        visible.release_large();
    });
}
#endif
