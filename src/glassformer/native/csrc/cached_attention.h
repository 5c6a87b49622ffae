// Equation 1 for one query position at a time, softmax(q Kᵀ / √d_k) V, with one pointer for each position of the cache.
// Keys and values are float32 or bfloat16 (T); the arithmetic is float32.
#pragma once
#include "arguments.h"
#include "softmax.h"

#define HEADS_AT_ONCE 4  // heads of q whose products with the keys of one position share vector instructions

// result[0 … size) = Σ_t weights[t] · rows[t][from … from + size)
template <class T>
static inline void weighted_sum(
    const float* weights, int64_t count, const T* const* rows, int64_t from, int64_t size, float* result
) {
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES) {
        Floats totals[4] = {};
        for (int64_t t = 0; t < count; t++) {
            const T* row = rows[t] + from + i;
            for (int j = 0; j < 4; j++) totals[j] += weights[t] * read(row + j * LANES);
        }
        for (int j = 0; j < 4; j++) store(result + i + j * LANES, totals[j]);
    }
    for (; i + LANES <= size; i += LANES) {
        Floats total = {};
        for (int64_t t = 0; t < count; t++) total += weights[t] * read(rows[t] + from + i);
        store(result + i, total);
    }
    for (; i < size; i++) {
        float total = 0;
        for (int64_t t = 0; t < count; t++) total += weights[t] * single(rows[t][from + i]);
        result[i] = total;
    }
}

// Products of four adjacent heads, each at the beginning of a quarter of the vector.
template <class T>
static inline Floats four_products(const float* q, const T* keys, int64_t d_k) {
    Floats totals[4] = {};
    for (int64_t i = 0; i < d_k; i += LANES)
        UNROLL_FOR (int j = 0; j < 4; j++) totals[j] += load(q + j * d_k + i) * read(keys + j * d_k + i);
    return four_sums(totals[0], totals[1], totals[2], totals[3]);
}

// Attention of the heads from `first`, a multiple of HEADS_AT_ONCE, to `last`. q contains adjacent heads; rows[t] the
// keys of position t and then its values. `scores` has `count` entries and one more vector for each head.
template <class T>
static void attend(
    const Heads& heads, int first, int last, const float* q, int64_t count, const T* const* rows, float* context,
    float* scores
) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(heads.d_k));
    const int64_t score_stride = padded(count, LANES) + LANES, d_k = heads.d_k, group = heads.group();
    for (int64_t t = 0; t < count; t++) {
        prefetch(rows[t + 1 < count ? t + 1 : t], heads.k_width() + heads.v_width());
        int head = first;
        for (; group == 1 && d_k % LANES == 0 && head + HEADS_AT_ONCE <= last; head += HEADS_AT_ONCE) {
            const Floats products = four_products(q + head * d_k, rows[t] + head * d_k, d_k) * scale;
            for (int j = 0; j < HEADS_AT_ONCE; j++) scores[(head + j) * score_stride + t] = products[j * LANES / 4];
        }
        for (; head < last; head++)
            scores[head * score_stride + t] = dot(q + head * d_k, rows[t] + head / group * d_k, heads.d_k) * scale;
    }
    for (int head = first; head < last; head++) {
        softmax_of(scores + head * score_stride, count);
        const int64_t from = heads.k_width() + head / group * heads.d_v;
        weighted_sum(scores + head * score_stride, count, rows, from, heads.d_v, context + head * heads.d_v);
    }
}
