// Keys, values and queries of a head in bfloat16 as the operands of products, and the buffers of a thread.
#pragma once
#include "microkernel.h"
#if HAS_BFLOAT16
#include "heads.h"
#include "pair_products.h"
#include "visible_keys.h"

// Width of the rows of a head: numbers, numbers in memory, columns of a product, and pairs of a sum.
struct HeadWidth {
    int64_t size, stride, columns, steps;

    explicit HeadWidth(int64_t size)
        : size(size), stride(padded(size, 2 * LANES)), columns(padded(size, PAIR_COLUMNS)), steps(pair_steps(size)) {}
};

// Buffers for one head of keys and values and a block of queries. In pairs two neighboring rows are interleaved, in
// transposed units rows are columns.
struct PairHead {
    HeadWidth k, v;
    int64_t keys;
    Pair *k_copies, *v_copies;             // [keys, stride / 2]
    Pair *k_pairs, *v_pairs;               // [keys / 2, stride]
    Pair* rows;                            // [QUERY_BLOCK, stride / 2]
    Pair *q_units, *d_context_units;       // [stride / 2, QUERY_BLOCK]
    Pair *q_pairs, *d_context_pairs;       // [QUERY_BLOCK / 2, stride]
    float *scores, *d_weights;             // [keys, QUERY_BLOCK]
    uint16_t *weight_rows, *d_score_rows;  // [keys, QUERY_BLOCK]
    Pair* weights;                         // or d_scores: [keys / 2, QUERY_BLOCK], as put_weight_pairs lays them out
    float *results, *d_k, *d_v;            // [QUERY_BLOCK, stride], [keys, stride]
    int64_t bytes;

    // `memory` is null for `bytes` alone.
    PairHead(const SequenceAttention& a, char* memory)
        : k(a.heads.d_k), v(a.heads.d_v), keys(padded(a.keys, PAIR_KEYS)) {
        Arena arena{memory};
        const int64_t stride = std::max(k.stride, v.stride);
        for (auto pointer : {&k_copies, &k_pairs}) *pointer = arena.next<Pair>(keys * k.stride / 2);
        for (auto pointer : {&v_copies, &v_pairs}) *pointer = arena.next<Pair>(keys * v.stride / 2);
        rows = arena.next<Pair>(QUERY_BLOCK * stride / 2);
        for (auto pointer : {&q_units, &q_pairs}) *pointer = arena.next<Pair>(QUERY_BLOCK * k.stride / 2);
        for (auto pointer : {&d_context_units, &d_context_pairs})
            *pointer = arena.next<Pair>(QUERY_BLOCK * v.stride / 2);
        for (auto pointer : {&scores, &d_weights}) *pointer = arena.next<float>(keys * QUERY_BLOCK);
        for (auto pointer : {&weight_rows, &d_score_rows}) *pointer = arena.next<uint16_t>(keys * QUERY_BLOCK);
        weights = arena.next<Pair>(keys / 2 * QUERY_BLOCK);
        results = arena.next<float>(QUERY_BLOCK * stride);
        d_k = arena.next<float>(keys * k.stride), d_v = arena.next<float>(keys * v.stride);
        bytes = arena.bytes;
    }
};

// Interleave neighboring rows of a block, to[row / 2][column].
static void pair_rows(const Pair* rows, int64_t count, int64_t stride, Pair* to) {
    const auto halves = reinterpret_cast<const uint16_t*>(rows);
    for (int64_t i = 0; i < count; i += 2, to += stride)
        interleave(halves + i * stride, halves + (i + 1) * stride, stride, to);
}

// Interleave neighboring rows of a head; rows from `count` on and columns behind the last are 0.
static void pair_rows(const Rows<uint16_t>& from, int64_t count, int64_t rows, const HeadWidth& width, Pair* to) {
    for (int64_t i = 0; i < rows; i += 2, to += width.stride) {
        const int64_t size = i < count ? width.size : 0;
        interleave(i < count ? from[i] : nullptr, i + 1 < count ? from[i + 1] : nullptr, size, to);
        std::fill(to + size, to + width.stride, Pair{});
    }
}

// Copy one row as `width` pairs; zeros fill them up.
static void copy_pairs(const uint16_t* row, int64_t size, int64_t width, Pair* to) {
    const auto halves = reinterpret_cast<uint16_t*>(to);
    int64_t d = 0;
    for (; d + 2 * LANES <= size; d += 2 * LANES) memcpy(halves + d, row + d, 4 * LANES);  // fixed size: one move
    for (; d + LANES <= size; d += LANES) memcpy(halves + d, row + d, 2 * LANES);
    for (; d < 2 * width; d++) halves[d] = d < size ? row[d] : 0;
}

// Copy rows that `used(row)` accepts, up to `count`; the others are 0.
template <class Used>
static void copy_used_rows(
    const Rows<uint16_t>& from, int64_t first, int64_t count, const HeadWidth& width, Pair* to, Used used
) {
    for (int64_t i = first; i < first + count; i++, to += width.stride / 2) {
        if (used(i)) copy_pairs(from[i], width.size, width.stride / 2, to);
        else std::fill(to, to + width.stride / 2, Pair{});
    }
}

// Rows of keys or values as the left operand of a product.
struct KeyRows {
    OperandOf<Pair> operand;
    int64_t count;

    // The rows are read in place without AMX, if each of them consists of pairs.
    KeyRows(const Rows<uint16_t>& from, int64_t keys, const PairHead& w, const HeadWidth& width, Pair* copies)
        : operand(adjacent_steps(reinterpret_cast<const Pair*>(from[0]), from.stride / 2)), count(keys) {
#if !HAS_AMX
        const bool aligned = reinterpret_cast<uintptr_t>(from[0]) % sizeof(Pair) == 0;
        if (aligned && width.size % 2 == 0 && from.stride % 2 == 0) return;
#endif
        copy_used_rows(from, 0, w.keys, width, copies, [&](int64_t key) { return key < keys; });
        operand = adjacent_steps(copies, width.stride / 2), count = w.keys;
    }
};
#endif
