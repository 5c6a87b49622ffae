// The head that a thread computes next: its rows are fetched into the L2 cache during the products of the present one.
#pragma once
#include "heads.h"
#include "visible_keys.h"

// True if one thread computes all heads of a sequence, which are adjacent in memory. With few sequences threads share
// the heads of one.
static inline bool has_many_sequences(const Attention& a) { return a.batch >= 4 * a.threads; }

// Rows of the head after `h` in the same sequence; keys and values if they are not shared with `h`.
template <class T>
class NextHead {
public:
    NextHead(const SequenceAttention& a, int64_t h, bool backward)
        : a_(a), h_(h + 1), exists_(h + 1 < a.heads.n_heads && (a.threads == 1 || has_many_sequences(a))),
          backward_(backward) {}

    // Fetch the rows that correspond to the queries [first, end), and after the last query all that are left of keys and
    // values.
    void fetch(int64_t first, int64_t end) const {
        if (!exists_) return;
        const Heads& heads = a_.heads;
        fetch_rows(a_.q, h_, heads.d_k, first, end);
        if (backward_) fetch_rows(a_.context_gradient, h_, heads.d_v, first, end);
        if (h_ % heads.group()) return;
        end = end < a_.queries ? std::min(end, a_.keys) : a_.keys;
        fetch_rows(a_.k, h_ / heads.group(), heads.d_k, first, end);
        fetch_rows(a_.v, h_ / heads.group(), heads.d_v, first, end);
    }

private:
    static void fetch_rows(const Sequences& all, int64_t h, int64_t size, int64_t first, int64_t end) {
        const Rows<T> rows(all, h);
        for (int64_t i = first; i < end; i++)
            for (int64_t j = 0; j < size; j += 64 / sizeof(T)) __builtin_prefetch(rows[i] + j, 0, 2);
        asm volatile("");  // GCC removes calls of a function that does nothing but prefetch
    }

    const SequenceAttention& a_;
    int64_t h_;
    bool exists_, backward_;
};
