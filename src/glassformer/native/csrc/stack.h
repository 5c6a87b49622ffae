// Functions that the forward and the backward pass of a stack share.
#pragma once
#include "attention.h"
#include "dropout.h"
#include "rope.h"
#include "stack_layout.h"

template <class T>
void stack_forward(const UnpaddedStack& stack);
template <class T>
void stack_backward(const UnpaddedStack& stack);

namespace {

Dropout dropout_at(const UnpaddedStack& s, int64_t sublayer, int32_t threshold) {
    return {s.seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(2 * sublayer + 1), threshold};
}

// Copy padded rows of `width` positions to rows without padding.
template <class X, class T>
void unpad(
    const UnpaddedStack& s, const std::vector<int64_t>& cu_seqlens, const void* padded_rows, int64_t width, T* to
) {
    const X* from = static_cast<const X*>(padded_rows);
    parallel_for(s.threads, s.batch, 1, [&](int64_t b, int64_t) {
        const int64_t used = (cu_seqlens[b + 1] - cu_seqlens[b]) * s.d_model;
        put(from + b * width * s.d_model, used, to + cu_seqlens[b] * s.d_model);
    });
}

// The inverse of unpad; padding is 0.
template <class T, class X>
void pad(
    const UnpaddedStack& s, const std::vector<int64_t>& cu_seqlens, const X* rows, int64_t width, void* padded_rows
) {
    parallel_for(s.threads, s.batch, 1, [&](int64_t b, int64_t) {
        T* to = static_cast<T*>(padded_rows) + b * width * s.d_model;
        const int64_t used = (cu_seqlens[b + 1] - cu_seqlens[b]) * s.d_model;
        put(rows + cu_seqlens[b] * s.d_model, used, to);
        std::fill(to + used, to + width * s.d_model, T{});
    });
}

// Copy one row for each selected token, with 0 for those of padding.
template <class T>
void put_selected(const UnpaddedStack& s, const T* from, T* to) {
    const int64_t d = s.d_model;
    parallel_for(s.threads, s.selected_count, CHUNK, [&](int64_t first, int64_t end) {
        std::copy(from + first * d, from + end * d, to + first * d);
        for (int64_t i = first; i < end; i++)
            if (s.selected_rows[i] < 0) std::fill(to + i * d, to + (i + 1) * d, T{});
    });
}

// Multiply rows of `a` by packed weights, into float32 rows.
template <class T>
void multiply_to(
    const T* a, int64_t stride, int64_t count, const Unit<T>* packed, int64_t columns, int64_t depth, const T* bias,
    float* to
) {
    multiply_block(
        rows_at(a, stride), count, packed, columns, steps_of<T>(depth), [&](int64_t column, const float* sums) {
            put_panel(sums, count, bias ? bias + column : nullptr, to + column, columns);
        }
    );
}

// Attention of the queries to the keys, or its gradients. Buffers of stacks without rows may be null.
template <class T>
void attention_of(
    const UnpaddedStack& s, const AttentionParameters& p, const SavedSublayer<T>& saved, bool backward, T* context,
    T* d_queries, T* d_keys, const T* d_context
) {
    const bool self = p.self;
    auto rows = [](const T* at, int64_t head, int64_t width) { return Sequences{const_cast<T*>(at), 0, head, width}; };
    Attention a = {s.batch, s.length, self ? s.length : s.memory_length, s.heads};
    a.cu_seqlens_q = s.cu_seqlens.data(), a.cu_seqlens_k = (self ? s.cu_seqlens : s.memory_cu_seqlens).data();
    const int64_t d_k = s.heads.d_k, d_v = s.heads.d_v;
    const T* from = self ? saved.queries + p.queries : saved.keys;
    a.q = rows(saved.queries, d_k, p.query_width), a.k = rows(from, d_k, p.key_width);
    a.v = rows(from + p.keys, d_v, p.key_width), a.context = rows(context, d_v, p.context);
    if (backward) {
        const T* to = self ? d_queries + p.queries : d_keys;
        a.q_gradient = rows(d_queries, d_k, p.query_width), a.k_gradient = rows(to, d_k, p.key_width);
        a.v_gradient = rows(to + p.keys, d_v, p.key_width), a.context_gradient = rows(d_context, d_v, p.context);
    }
    a.mask = self ? s.mask : s.memory_mask;
    a.log_sums = saved.log_sums, a.seed = dropout_at(s, saved.number, 0).seed + 1;
    a.threshold = s.attention_threshold, a.bfloat16 = s.bfloat16, a.threads = s.threads;
    attend_batches<T>(a, backward);
}

// Rotate the adjacent queries and keys in x by the angles of their positions, or back with the inverse sines.
template <class T>
void rotate_heads(const UnpaddedStack& s, const AttentionParameters& p, T* x, const float* sines) {
    if (!s.rotary.cosines) return;
    const int64_t size = s.heads.d_k;
    const Sequences both = {x, 0, size, p.query_width};
    rotate<T>(
        {s.batch,
         s.heads.n_heads + s.heads.n_kv_heads,
         s.length,
         size,
         both,
         both,
         {s.rotary.cosines, sines},
         s.bfloat16,
         s.threads,
         s.cu_seqlens.data()}
    );
}

}  // namespace
