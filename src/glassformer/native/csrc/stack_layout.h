// The rows of a stack in training without padding, and the activations saved for the backward
// pass. The caller owns them as one block of memory; `SavedStack` defines its layout.
#pragma once
#include "activation.h"
#include "norm.h"
#include "split_products.h"
#include <stdexcept>
#include <string>
#include <vector>

// First row of each sequence without padding, and the end of the last (cumulative sequence lengths). Positions after
// the last one visible to any query are padding.
static std::vector<int64_t> cu_seqlens_of(
    const DenseMask& mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys
) {
    std::vector<int64_t> cu_seqlens(batch + 1);
    for (int64_t b = 0; b < batch; b++) {
        int64_t length = mask.data ? 0 : keys;
        for (int64_t h = 0; mask.data && h < (mask.head ? heads : 1); h++)
            // The last query that is not padding usually has the most visible keys.
            for (int64_t query = mask.query ? queries : 1; query-- > 0 && length < keys;) {
                const uint8_t* row = mask.data + b * mask.batch + h * mask.head + query * mask.query;
                for (int64_t key = keys; key > length; key--)
                    if (row[(key - 1) * mask.key]) length = key;
            }
        cu_seqlens[b + 1] = cu_seqlens[b] + length;
    }
    return cu_seqlens;
}

// Row of each selected token; -1 for padding.
static std::vector<int64_t> rows_of_selected(const TrainingStack& s, const std::vector<int64_t>& cu_seqlens) {
    if (!s.selected) return {};
    std::vector<int64_t> rows(s.selected_count);
    for (size_t i = 0; i < rows.size(); i++) {
        const int64_t token = s.selected[i];
        if (token < 0 || token >= s.batch * s.length)
            throw std::out_of_range(
                "a selected token is outside the " + std::to_string(s.batch) + " × " + std::to_string(s.length) +
                " tokens of the batch"
            );
        const int64_t sequence = token / s.length, row = cu_seqlens[sequence] + token % s.length;
        rows[i] = row < cu_seqlens[sequence + 1] ? row : -1;
    }
    return rows;
}

// True for 0, 1, … count − 1.
static bool are_indices(const std::vector<int64_t>& rows, int64_t count) {
    for (size_t i = 0; i < rows.size(); i++)
        if (rows[i] != static_cast<int64_t>(i)) return false;
    return static_cast<int64_t>(rows.size()) == count;
}

// The stack with rows without padding: no operation is spent on padding.
struct UnpaddedStack : TrainingStack {
    std::vector<int64_t> cu_seqlens, memory_cu_seqlens;
    int64_t rows, memory_rows;
    std::vector<int64_t> selected_rows;
    bool every_row;     // the selected rows are all, in order
    bool selects;       // after its attention, the last layer computes the selected rows only
    int64_t last_rows;  // after the last layer's attention

    Activation activation_kind() const { return static_cast<Activation>(activation); }
    bool gated() const { return n_layers && layers->gate.weight.value; }
    // Width of the first products of a feed-forward layer: an optional gate, then the other half.
    int64_t hidden_width() const { return gated() ? 2 * d_ff : d_ff; }

    explicit UnpaddedStack(const TrainingStack& stack)
        : TrainingStack(stack), cu_seqlens(cu_seqlens_of(mask, batch, heads.n_heads, length, length)),
          memory_cu_seqlens(cu_seqlens_of(memory_mask, batch, heads.n_heads, length, memory_length)),
          rows(cu_seqlens.back()), memory_rows(memory_cu_seqlens.back()),
          selected_rows(rows_of_selected(stack, cu_seqlens)), every_row(are_indices(selected_rows, rows)),
          selects(selected && !memory_length && !every_row), last_rows(selects ? selected_count : rows) {}
};

// Activations of one sub-layer that are saved for the backward pass. Operands of weight gradients lie in panels.
template <class T>
struct SavedSublayer {
    const T* input;
    int64_t rows, results;  // rows of the input and of the output
    T *sum, *output;        // input + sub-layer; the same, or its norm if post-norm
    Unit<T>* packed_input;  // input of the first product, in panels
    T *queries, *keys;      // of attention; keys includes values
    // In panels. hidden: the activation's input in a feed-forward layer, or the output of an ungated ReLU.
    Panels<T> context, hidden;
    float* log_sums;
    Statistics* statistics;
    int64_t number;
    bool selects;  // the output has the selected rows only
};

template <class T>
struct SavedStack {
    std::vector<SavedSublayer<T>> self, cross, feed_forward;
    T* input;         // post-norm: `stream`, which every sub-layer overwrites; not available in the backward pass
    Unit<T>* memory;  // in panels
    const T* result;  // of the last layer
    Statistics* final_statistics;  // of the rows of `result`
    int64_t bytes;

    explicit SavedStack(const UnpaddedStack& s, T* stream = nullptr) {
        Arena arena{static_cast<char*>(s.saved)};
        const int64_t rows = s.rows, d = s.d_model;
        input = s.pre_norm ? arena.next<T>(rows * d) : stream;
        memory = arena.next<Unit<T>>(steps_of<T>(s.memory_rows) * d);
        const T* x = input;
        int64_t number = 0;
        auto begin = [&](int64_t before, int64_t after) {
            SavedSublayer<T> saved = {x, before, after, arena.next<T>(after * d)};
            saved.output = s.pre_norm ? saved.sum : stream;
            saved.packed_input = arena.next<Unit<T>>(steps_of<T>(before) * d);
            saved.statistics = arena.next<Statistics>(std::max(before, after)), saved.number = number++;
            x = saved.output;
            return saved;
        };
        auto attention = [&](bool is_self, int64_t after) {
            SavedSublayer<T> saved = begin(rows, after);
            const int64_t queries = s.heads.q_width(), keys = s.heads.k_width() + s.heads.v_width();
            saved.queries = arena.next<T>(rows * (is_self ? queries + keys : queries));
            saved.keys = is_self ? nullptr : arena.next<T>(s.memory_rows * keys);
            saved.context = arena.next<Unit<T>>(steps_of<T>(after) * s.heads.context_width());
            saved.log_sums = arena.next<float>(rows * s.heads.n_heads);
            return saved;
        };
        for (int64_t layer = 0; layer < s.n_layers; layer++) {
            const bool last = layer + 1 == s.n_layers;
            const int64_t after = last ? s.last_rows : rows;
            self.push_back(attention(true, after));
            self.back().selects = last && s.selects;
            if (s.memory_length) cross.push_back(attention(false, rows));
            feed_forward.push_back(begin(after, after));
            feed_forward.back().hidden = arena.next<Unit<T>>(steps_of<T>(after) * s.hidden_width());
        }
        result = x;
        final_statistics = arena.next<Statistics>(s.final_norm.weight.value ? s.last_rows : 0);
        bytes = arena.bytes;
    }
};

// One attention of a layer: weights, rows and widths. In self-attention one row contains queries, keys and values, else
// keys and values.
struct AttentionParameters {
    bool self;
    const Norm& norm;
    const Linear &query, &key, &value, &output;
    int64_t rows, memory;                    // memory: rows of keys, 0 in self-attention
    int64_t queries, keys, values, context;  // columns
    int64_t query_width, key_width;          // row strides

    AttentionParameters(const UnpaddedStack& s, const Layer& layer, bool self)
        : self(self), norm(self ? layer.self_norm : layer.cross_norm), query(self ? layer.query : layer.cross_query),
          key(self ? layer.key : layer.cross_key), value(self ? layer.value : layer.cross_value),
          output(self ? layer.output : layer.cross_output), rows(s.rows), memory(self ? 0 : s.memory_rows),
          queries(s.heads.q_width()), keys(s.heads.k_width()), values(s.heads.v_width()),
          context(s.heads.context_width()), query_width(self ? queries + keys + values : queries),
          key_width(self ? query_width : keys + values) {}

    // Column of the first key in its row.
    int64_t first_key() const { return self ? queries : 0; }
};
