// One sequence of a batch, and the keys visible to each of its queries.
#pragma once
#include "arguments.h"
#include "simd.h"
#include <vector>

struct Range { int64_t low, high; };

// Attention of one sequence of a batch, with its rows, mask and log-sums.
struct SequenceAttention : Attention {
    int64_t index, queries_before;  // of the sequence; queries of those before it, on which dropout depends

    const uint8_t* mask_of(int64_t h) const { return mask.data ? mask.data + h * mask.head : nullptr; }
    // True if what was found visible for a head of the sequence `found_for` holds for every head of this one.
    bool shares_mask(int64_t found_for) const { return found_for == index && mask.head == 0; }
};

template <class T>
static SequenceAttention select_sequence(const Attention& all, int64_t b) {
    SequenceAttention a = {all, b, b * all.queries};
    auto begin = [&](Sequences& rows, const int64_t* cu_seqlens) {
        if (rows.data)
            rows.data = static_cast<T*>(rows.data) + (cu_seqlens ? cu_seqlens[b] * rows.position : b * rows.batch);
    };
    for (Sequences* rows : {&a.q, &a.context, &a.q_gradient, &a.context_gradient}) begin(*rows, a.cu_seqlens_q);
    for (Sequences* rows : {&a.k, &a.v, &a.k_gradient, &a.v_gradient}) begin(*rows, a.cu_seqlens_k);
    if (a.cu_seqlens_q) a.queries_before = a.cu_seqlens_q[b], a.queries = a.cu_seqlens_q[b + 1] - a.cu_seqlens_q[b];
    if (a.cu_seqlens_k) a.keys = a.cu_seqlens_k[b + 1] - a.cu_seqlens_k[b];
    if (a.mask.data) a.mask.data += b * a.mask.batch;
    a.log_sums += a.queries_before * a.heads.n_heads;
    return a;
}

// A range for each query, from the first to the last visible key; it is empty if there is none.
class VisibleRanges {
public:
    void find_ranges(const SequenceAttention& a, const uint8_t* mask) {
        const int64_t padded_queries = padded(a.queries + LANES, LANES);  // a vector may begin at any query
        low_.assign(padded_queries, 0), high_.assign(padded_queries, 0);
        for (int64_t i = 0; i < a.queries; i++) {
            const Range range = mask && i && !a.mask.query ? Range{low_[0], high_[0]} : find_range(a, mask, i);
            low_[i] = static_cast<int32_t>(range.low), high_[i] = static_cast<int32_t>(range.high);
        }
    }

    // Range of the keys visible to any of the queries [from, to).
    Range range(int64_t from, int64_t to) const {
        Range range = {INT32_MAX, 0};
        for (int64_t i = from; i < to; i++)
            if (low_[i] < high_[i])
                range = {std::min<int64_t>(range.low, low_[i]), std::max<int64_t>(range.high, high_[i])};
        return range.low < range.high ? range : Range{0, 0};
    }

protected:
    std::vector<int32_t> low_, high_;  // first visible key and the end of the visible keys, with padding

private:
    static Range find_range(const SequenceAttention& a, const uint8_t* mask, int64_t query) {
        if (!mask) return {0, a.keys};
        const uint8_t* row = mask + query * a.mask.query;
        int64_t low = 0, high = a.keys;
        if (a.mask.key == 1) {  // eight keys at a time
            while (low + 8 <= high && !eight(row + low)) low += 8;
            while (low + 8 <= high && !eight(row + high - 8)) high -= 8;
        }
        while (low < high && !row[low * a.mask.key]) low++;
        while (high > low && !row[(high - 1) * a.mask.key]) high--;
        return low < high ? Range{low, high} : Range{0, 0};
    }

    static uint64_t eight(const uint8_t* from) {
        uint64_t bytes;
        memcpy(&bytes, from, 8);
        return bytes;
    }
};

// The visible keys themselves, for vectors whose lanes are queries.
class VisibleKeys : public VisibleRanges {
public:
    // Range of the keys visible to each of the queries [from, to); it may be empty.
    Range range_of_all(int64_t from, int64_t to) const {
        Range range = {0, dense_.empty() ? INT32_MAX : 0};
        for (int64_t i = from; i < to; i++)
            range = {std::max<int64_t>(range.low, low_[i]), std::min<int64_t>(range.high, high_[i])};
        return range;
    }

    // Number of queries from `from` on, at most `count`, before one to which only keys behind all of theirs are
    // visible, such as the first of the next sentence of a row.
    int64_t connected(int64_t from, int64_t count) const {
        int32_t end = high_[from];
        for (int64_t i = from + 1; i < from + count; i++) {
            if (low_[i] >= end && end > low_[from]) return i - from;
            end = std::max(end, high_[i]);
        }
        return count;
    }

    bool any(int64_t query) const { return low_[query] < high_[query]; }

    // −1 in the lanes of the queries from `query` on to which the key is visible, 0 in the others.
    Ints lanes(int64_t query, int64_t key) const {
        const auto at = static_cast<int32_t>(key);
        const Ints inside = (load(low_.data() + query) <= at) & (load(high_.data() + query) > at);
        return dense_.empty() ? inside : inside & dense_lanes(query, key);
    }

    void find(const SequenceAttention& a, const uint8_t* mask) {
        find_ranges(a, mask);
        dense_.clear();
        if (!mask || are_ranges(a, mask)) return;
        const auto padded_queries = static_cast<int64_t>(low_.size());
        dense_.assign(padded(a.keys, 2) * padded_queries, 0);
        for (int64_t i = 0; i < a.queries; i++)
            for (int64_t j = low_[i]; j < high_[i]; j++)
                dense_[j * padded_queries + i] = mask[i * a.mask.query + j * a.mask.key] != 0;
    }

    // Free a dense mask of more than 4 MB, which a thread would keep.
    void release_large() {
        if (dense_.capacity() > 1 << 22) std::vector<int8_t>().swap(dense_);
    }

private:
    // [even number of keys, padded queries]: 1 if visible; empty if all keys of the ranges are.
    std::vector<int8_t> dense_;

    Ints dense_lanes(int64_t query, int64_t key) const {
        return widened(dense_.data() + key * low_.size() + query) != 0;
    }

    // True if every key of the ranges is visible.
    bool are_ranges(const SequenceAttention& a, const uint8_t* mask) const {
        for (int64_t i = 0; i < (a.mask.query ? a.queries : std::min<int64_t>(a.queries, 1)); i++) {
            int64_t visible = 0;
            for (int64_t j = low_[i]; j < high_[i]; j++) visible += mask[i * a.mask.query + j * a.mask.key] != 0;
            if (visible < high_[i] - low_[i]) return false;
        }
        return true;
    }
};
