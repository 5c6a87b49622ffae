// Arguments of attention over full sequences.
#pragma once
#include "heads.h"

struct Attention {
    int64_t batch, heads, queries, keys, d_k, d_v;
    Sequences q, k, v, context;
    Sequences d_q, d_k_, d_v_, d_context;                 // backward pass only
    const uint8_t* mask;                                  // 1: visible; or null
    int64_t mask_batch, mask_head, mask_query, mask_key;  // strides; 0 for a broadcast axis
    float* log_sums;                                      // [batch, heads, queries]
    uint64_t seed;
    int32_t threshold, bfloat16;  // threshold / 256 of the weights are dropped
    int64_t threads;
    // First query and key of each sequence in unpadded rows, or nulls.
    const int64_t *cu_seqlens_q, *cu_seqlens_k;
    int64_t queries_before;
    int64_t kv_heads;  // heads of keys and values, one for each group of query heads

    int64_t group() const { return heads / kv_heads; }
};

struct Range { int64_t low, high; };

static const uint8_t* mask_of(const Attention& a, int64_t h) { return a.mask ? a.mask + h * a.mask_head : nullptr; }

// Arguments for sequence b alone, with its rows, mask and log-sums.
template <class T>
static Attention select_batch(Attention a, int64_t b) {
    a.queries_before = b * a.queries;
    auto begin = [&](Sequences& rows, const int64_t* cu_seqlens) {
        if (rows.data)
            rows.data = static_cast<T*>(rows.data) + (cu_seqlens ? cu_seqlens[b] * rows.position : b * rows.batch);
    };
    for (Sequences* rows : {&a.q, &a.context, &a.d_q, &a.d_context}) begin(*rows, a.cu_seqlens_q);
    for (Sequences* rows : {&a.k, &a.v, &a.d_k_, &a.d_v_}) begin(*rows, a.cu_seqlens_k);
    if (a.cu_seqlens_q) a.queries_before = a.cu_seqlens_q[b], a.queries = a.cu_seqlens_q[b + 1] - a.cu_seqlens_q[b];
    if (a.cu_seqlens_k) a.keys = a.cu_seqlens_k[b + 1] - a.cu_seqlens_k[b];
    if (a.mask) a.mask += b * a.mask_batch;
    a.log_sums += a.queries_before * a.heads;
    return a;
}
