// Equation 1 and its gradient for whole sequences, by all cores, never holding more than a few rows of scores.
//
// TILE queries at a time see the keys between the first and the last that one of them may see: where a row holds
// several sentences, or nothing of the future is seen, the rest is not computed. The weights are made anew backwards
// from the logarithm of their denominator (Dao et al. 2022, arXiv:2205.14135, section 3.1).
#pragma once
#include "attention.h"
#include "dropout.h"
#include <algorithm>
#include <vector>

#define TILE 4

// Rows of numbers: entry d of position i of a head of a batch at data[batch · b + head · h + position · i + d].
struct Sequences {
    void* data;
    int64_t batch, head, position;
};

struct Attention {
    int64_t batch, heads, queries, keys, d_k, d_v;
    Sequences q, k, v, context;
    Sequences d_q, d_k_, d_v_, d_context;  // of the gradient only
    const uint8_t* mask;                   // 1: may be seen; or null
    int64_t mask_batch, mask_head, mask_query, mask_key;  // how far apart its entries lie, 0 where they are shared
    float* log_sums;  // [batch, heads, queries]
    uint64_t seed;
    int32_t threshold, bfloat16;  // threshold / 256 of the weights are dropped
    int64_t threads;
};

struct Range {
    int64_t low, high;
};

// What one head of one batch works with; the columns of transposed ones are padded to whole vectors.
struct Head {
    std::vector<float> q, k, v, k_turned, v_turned, context, d_context, d_q, d_k, d_v;
    std::vector<float> weights, kept, d_weights;  // [TILE, room]
    int64_t room;
    std::vector<Range> ranges;  // of each tile
    int64_t ranges_of;          // batch
};

template <class T>
static void fetch_rows(const Sequences& from, int64_t b, int64_t h, int64_t count, int64_t size, std::vector<float>& to) {
    const size_t needed = (count + TILE) * size;
    if (to.size() < needed) to.resize(needed);
    std::fill(to.begin() + count * size, to.begin() + needed, 0.0f);
    for (int64_t i = 0; i < count; i++) {
        auto row = static_cast<const T*>(from.data) + b * from.batch + h * from.head + i * from.position;
        int64_t d = 0;
        for (; d + LANES <= size; d += LANES) store(to.data() + i * size + d, read(row + d));
        for (; d < size; d++) to[i * size + d] = single(row[d]);
    }
}

template <class T>
static void put_rows(const std::vector<float>& from, int64_t count, int64_t size, const Sequences& to, int64_t b, int64_t h) {
    for (int64_t i = 0; i < count; i++) {
        auto row = static_cast<T*>(to.data) + b * to.batch + h * to.head + i * to.position;
        int64_t d = 0;
        for (; d + LANES <= size; d += LANES) write(row + d, load(from.data() + i * size + d));
        for (; d < size; d++) put_single(row + d, from[i * size + d]);
    }
}

static void turn(const std::vector<float>& rows, int64_t count, int64_t size, int64_t room, std::vector<float>& to) {
    to.resize(size * room);
    for (int64_t d = 0; d < size; d++) {
        float* row = to.data() + d * room;
        for (int64_t i = 0; i < count; i++) row[i] = rows[i * size + d];
        std::fill(row + count, row + room, 0.0f);
    }
}

// results[t][j] = Σ_d rows[t][d] · turned[d][j] for j in [low, high) and on to the end of a vector.
static void dots(
    const float* rows, int64_t size, const std::vector<float>& turned, int64_t room, int64_t low, int64_t high, float* results
) {
    for (int64_t j = low; j < high; j += LANES) {
        Floats sums[TILE] = {};
        for (int64_t d = 0; d < size; d++) {
            const Floats column = load(turned.data() + d * room + j);
            UNROLL for (int t = 0; t < TILE; t++) sums[t] += rows[t * size + d] * column;
        }
        UNROLL for (int t = 0; t < TILE; t++) store(results + t * room + j, sums[t]);
    }
}

// results[t] = Σ_j weights[t][j] · rows[j], j in [low, high)
static void weigh(
    const float* weights, int64_t room, const std::vector<float>& rows, int64_t size, int64_t low, int64_t high, float* results
) {
    for (int64_t d = 0; d < size; d += 2 * LANES) {
        const int64_t width = std::min<int64_t>(2 * LANES, size - d);
        if (width == 2 * LANES) {
            Floats sums[TILE][2] = {};
            for (int64_t j = low; j < high; j++) {
                const Floats left = load(rows.data() + j * size + d), right = load(rows.data() + j * size + d + LANES);
                UNROLL for (int t = 0; t < TILE; t++) {
                    sums[t][0] += weights[t * room + j] * left;
                    sums[t][1] += weights[t * room + j] * right;
                }
            }
            UNROLL for (int t = 0; t < TILE; t++) {
                store(results + t * size + d, sums[t][0]);
                store(results + t * size + d + LANES, sums[t][1]);
            }
            continue;
        }
        for (int t = 0; t < TILE; t++)
            for (int64_t e = d; e < d + width; e++) {
                float sum = 0;
                for (int64_t j = low; j < high; j++) sum += weights[t * room + j] * rows[j * size + e];
                results[t * size + e] = sum;
            }
    }
}

// to[j] += Σ_t weights[t][j] · rows[t], j in [low, high)
static void spread(
    const float* weights, int64_t room, const float* rows, int64_t size, int64_t low, int64_t high, std::vector<float>& to
) {
    for (int64_t j = low; j < high; j++) {
        float* row = to.data() + j * size;
        int64_t d = 0;
        for (; d + LANES <= size; d += LANES) {
            Floats sum = load(row + d);
            UNROLL for (int t = 0; t < TILE; t++) sum += weights[t * room + j] * load(rows + t * size + d);
            store(row + d, sum);
        }
        for (; d < size; d++)
            for (int t = 0; t < TILE; t++) row[d] += weights[t * room + j] * rows[t * size + d];
    }
}

// The keys between the first and the last that a query from i on may see, of TILE queries.
static Range visible(const Attention& a, const uint8_t* mask, int64_t i) {
    if (!mask) return {0, a.keys};
    Range range = {a.keys, 0};
    for (int64_t t = i; t < std::min(i + TILE, a.queries); t++) {
        const uint8_t* row = mask + t * a.mask_query;
        int64_t low = 0, high = a.keys;
        while (low < high && !row[low * a.mask_key]) low++;
        while (high > low && !row[(high - 1) * a.mask_key]) high--;
        if (low < high) range = {std::min(range.low, low), std::max(range.high, high)};
    }
    return range.low < range.high ? range : Range{0, 0};
}

static const uint8_t* mask_of(const Attention& a, int64_t b, int64_t h) {
    return a.mask ? a.mask + b * a.mask_batch + h * a.mask_head : nullptr;
}

static void find_ranges(const Attention& a, int64_t b, int64_t h, Head& w) {
    if (w.ranges_of == b && a.mask_head == 0) return;
    w.ranges.clear();
    for (int64_t i = 0; i < a.queries; i += TILE) w.ranges.push_back(visible(a, mask_of(a, b, h), i));
    w.ranges_of = b;
}

// Scores of one query → weights; backwards (`log_sum` given) with the denominator known. What is unseen becomes 0.
static float normalise_scores(
    const Attention& a, const uint8_t* mask, int64_t i, Range range, float* scores, const float* log_sum
) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(a.d_k));
    for (int64_t j = range.low; j < range.high; j++)
        scores[j] = !mask || mask[i * a.mask_query + j * a.mask_key] ? scores[j] * scale : -INFINITY;
    for (int64_t j = range.high; j < range.high + LANES; j++) scores[j] = -INFINITY;
    float shift = log_sum ? *log_sum : -INFINITY;
    for (int64_t j = range.low; !log_sum && j < range.high; j++) shift = scores[j] > shift || scores[j] != scores[j] ? scores[j] : shift;
    if (shift == -INFINITY) {
        std::fill(scores + range.low, scores + range.high, 0.0f);
        return shift;
    }
    Floats total = {};
    for (int64_t j = range.low; j < range.high; j += LANES) {
        const Floats weights = exponential(load(scores + j) - shift);
        store(scores + j, weights);
        total += weights;
    }
    if (log_sum) return shift;
    const float sum_of_all = sum(total), inverse = 1.0f / sum_of_all;
    for (int64_t j = range.low; j < range.high; j += LANES) store(scores + j, load(scores + j) * inverse);
    return shift + std::log(sum_of_all);
}

// kept = values where they are not dropped, scaled.
static void drop_weights(const Attention& a, int64_t row, Range range, const float* values, float* kept) {
    const float scale = 256.0f / (256 - a.threshold);
    Ints lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    for (int64_t j = range.low; j < range.high; j += LANES) {
        const auto place = static_cast<uint32_t>(row) * 0x9e3779b1u;
        const Ints bits = mixed(lane + static_cast<int32_t>(j), static_cast<uint32_t>(a.seed) ^ place,
                                static_cast<uint32_t>(a.seed >> 32) + static_cast<uint32_t>(row >> 32));
        store(kept + j, (bits & 255) >= a.threshold ? load(values + j) * scale : Floats{});
    }
}

// What both directions begin with.
template <class T>
static void prepare(const Attention& a, int64_t b, int64_t h, Head& w) {
    fetch_rows<T>(a.q, b, h, a.queries, a.d_k, w.q), fetch_rows<T>(a.k, b, h, a.keys, a.d_k, w.k);
    fetch_rows<T>(a.v, b, h, a.keys, a.d_v, w.v);
    turn(w.k, a.keys, a.d_k, w.room, w.k_turned);
    find_ranges(a, b, h, w);
}

template <class T>
static void attend_forward(const Attention& a, int64_t b, int64_t h, Head& w) {
    prepare<T>(a, b, h, w);
    w.context.resize((a.queries + TILE) * a.d_v);
    const uint8_t* mask = mask_of(a, b, h);
    for (int64_t i = 0; i < a.queries; i += TILE) {
        const Range range = w.ranges[i / TILE];
        const int64_t first = (b * a.heads + h) * a.queries;
        dots(w.q.data() + i * a.d_k, a.d_k, w.k_turned, w.room, range.low, range.high, w.weights.data());
        for (int64_t t = i; t < std::min(i + TILE, a.queries); t++) {
            float* weights = w.weights.data() + (t - i) * w.room;
            a.log_sums[first + t] = normalise_scores(a, mask, t, range, weights, nullptr);
            if (a.threshold) drop_weights(a, first + t, range, weights, weights);
        }
        weigh(w.weights.data(), w.room, w.v, a.d_v, range.low, range.high, w.context.data() + i * a.d_v);
    }
    put_rows<T>(w.context, a.queries, a.d_v, a.context, b, h);
}

// d_scores = weights ∘ (d_weights − Σ weights ∘ d_weights) / √d_k, in place of d_weights.
static void score_gradients(const Attention& a, Range range, const float* weights, float* d_weights) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(a.d_k));
    float product = 0;
    for (int64_t j = range.low; j < range.high; j++) product += weights[j] * d_weights[j];
    for (int64_t j = range.low; j < range.high; j++) d_weights[j] = weights[j] * (d_weights[j] - product) * scale;
}

template <class T>
static void attend_backward(const Attention& a, int64_t b, int64_t h, Head& w) {
    prepare<T>(a, b, h, w);
    fetch_rows<T>(a.d_context, b, h, a.queries, a.d_v, w.d_context);
    w.d_q.resize((a.queries + TILE) * a.d_k);
    w.d_k.assign(a.keys * a.d_k, 0.0f), w.d_v.assign(a.keys * a.d_v, 0.0f);
    turn(w.v, a.keys, a.d_v, w.room, w.v_turned);
    const uint8_t* mask = mask_of(a, b, h);
    for (int64_t i = 0; i < a.queries; i += TILE) {
        const Range range = w.ranges[i / TILE];
        const int64_t first = (b * a.heads + h) * a.queries;
        dots(w.q.data() + i * a.d_k, a.d_k, w.k_turned, w.room, range.low, range.high, w.weights.data());
        dots(w.d_context.data() + i * a.d_v, a.d_v, w.v_turned, w.room, range.low, range.high, w.d_weights.data());
        for (int64_t t = 0; t < TILE; t++) {
            float *weights = w.weights.data() + t * w.room, *kept = w.kept.data() + t * w.room;
            float* d_weights = w.d_weights.data() + t * w.room;
            if (i + t >= a.queries) {
                for (float* row : {weights, kept, d_weights}) std::fill(row + range.low, row + range.high, 0.0f);
                continue;
            }
            normalise_scores(a, mask, i + t, range, weights, a.log_sums + first + i + t);
            if (a.threshold) {
                drop_weights(a, first + i + t, range, weights, kept);
                drop_weights(a, first + i + t, range, d_weights, d_weights);
            } else {
                std::copy(weights + range.low, weights + range.high, kept + range.low);
            }
            score_gradients(a, range, weights, d_weights);
        }
        spread(w.kept.data(), w.room, w.d_context.data() + i * a.d_v, a.d_v, range.low, range.high, w.d_v);
        spread(w.d_weights.data(), w.room, w.q.data() + i * a.d_k, a.d_k, range.low, range.high, w.d_k);
        weigh(w.d_weights.data(), w.room, w.k, a.d_k, range.low, range.high, w.d_q.data() + i * a.d_k);
    }
    put_rows<T>(w.d_q, a.queries, a.d_k, a.d_q, b, h), put_rows<T>(w.d_k, a.keys, a.d_k, a.d_k_, b, h);
    put_rows<T>(w.d_v, a.keys, a.d_v, a.d_v_, b, h);
}

template <class T>
static void attend_all(const Attention& a, bool backward) {
#pragma omp parallel num_threads(a.threads)
    {
        thread_local Head work;
        work.room = padded(a.keys, LANES) + 2 * LANES, work.ranges_of = -1;
        for (auto* each : {&work.weights, &work.kept, &work.d_weights}) each->assign(TILE * work.room, 0.0f);
#pragma omp for schedule(static)
        for (int64_t index = 0; index < a.batch * a.heads; index++) {
            if (backward) attend_backward<T>(a, index / a.heads, index % a.heads, work);
            else attend_forward<T>(a, index / a.heads, index % a.heads, work);
        }
    }
}
