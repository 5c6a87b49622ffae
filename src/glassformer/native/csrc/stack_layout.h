// The weights of a whole stack of layers in training, its rows without padding, and what its forward pass saves for the
// backward pass: one block of memory of the caller, in the order in which `SavedStack` lays it out.
#pragma once
#include "activation.h"
#include "attention.h"
#include "gemm.h"
#include "layer.h"
#include "norm.h"
#include "rope.h"

struct TrainingMask {
    const uint8_t* seen;  // 1: may be seen; or null
    int64_t batch, head, query, key;
};

struct TrainedStack {
    int64_t layers, batch, length, memory_length, d_model, heads, d_ff;  // memory_length: 0 where there is no memory
    int64_t kv_heads, d_k, d_v;  // kv_heads: of keys and values, each for a group of heads
    const Layer* layer;
    const void *x, *memory;
    TrainingMask mask, memory_mask;
    const float *cosines, *sines, *sines_back;  // of rotary positions, or null
    void *result, *saved;
    const void* d_result;
    void *d_x, *d_memory;
    uint64_t seed;
    int32_t threshold, attention_threshold, pre_norm, bfloat16, activation;
    int64_t threads;
};

// The first position of each sequence when they lie one behind the other without padding, and the end of the last.
// Padding is what stands behind the last position that any query may see.
static std::vector<int64_t> cu_seqlens_of(
    const TrainingMask& mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys
) {
    std::vector<int64_t> cu_seqlens(batch + 1);
    for (int64_t b = 0; b < batch; b++) {
        int64_t length = mask.seen ? 0 : keys;
        for (int64_t h = 0; mask.seen && h < (mask.head ? heads : 1); h++)
            // The last query sees the most.
            for (int64_t query = mask.query ? queries : 1; query-- > 0 && length < keys;) {
                const uint8_t* row = mask.seen + b * mask.batch + h * mask.head + query * mask.query;
                for (int64_t key = keys; key > length; key--)
                    if (row[(key - 1) * mask.key]) length = key;
            }
        cu_seqlens[b + 1] = cu_seqlens[b] + length;
    }
    return cu_seqlens;
}

// The stack that is computed: rows lie one behind the other without their padding, for which nothing is done.
struct CompactStack : TrainedStack {
    std::vector<int64_t> cu_seqlens, memory_cu_seqlens;
    int64_t rows, memory_rows;

    Activation form() const { return static_cast<Activation>(activation); }
    bool gated() const { return layers && layer->gate.weight.value; }
    // What the first products of a feed-forward layer give: the gate, if there is one, then the other half.
    int64_t hidden_width() const { return gated() ? 2 * d_ff : d_ff; }
    int64_t query_columns() const { return heads * d_k; }
    int64_t key_columns() const { return kv_heads * d_k; }
    int64_t value_columns() const { return kv_heads * d_v; }
    int64_t context_columns() const { return heads * d_v; }

    explicit CompactStack(const TrainedStack& stack)
        : TrainedStack(stack), cu_seqlens(cu_seqlens_of(mask, batch, heads, length, length)),
          memory_cu_seqlens(cu_seqlens_of(memory_mask, batch, heads, length, memory_length)), rows(cu_seqlens.back()),
          memory_rows(memory_cu_seqlens.back()) {}
};

// Activations of one sub-layer that are saved for the backward pass. Operands of weight gradients lie in panels.
template <class T>
struct SavedSublayer {
    const T* input;
    T *sum, *output;            // of input and sub-layer; the sum itself, or its norm in the post-norm order
    Unit<T>* packed_input;      // panels of the first product's input
    T *queries, *keys;          // of attention; keys: and values
    // Panels; hidden: of feed-forward layers the activation's input, of ReLU without a gate its output.
    Unit<T> *context, *hidden;
    float* log_sums;
    Statistics* statistics;
    int64_t number;
};

struct Arena {
    char* at;
    template <class X>
    X* next(int64_t count) {
        auto here = reinterpret_cast<X*>(at);
        at += padded(count * sizeof(X), 64);
        return here;
    }
};

template <class T>
struct SavedStack {
    std::vector<SavedSublayer<T>> self, cross, feed_forward;
    T* input;  // of post-norm `stream`, where what a sub-layer gives takes the place of what it got; gone backwards
    Unit<T>* memory;  // panels
    const T* result;
    int64_t bytes;

    explicit SavedStack(const CompactStack& s, T* stream = nullptr) {
        Arena arena{static_cast<char*>(s.saved)};
        const int64_t rows = s.rows, d = s.d_model, steps = steps_of<T>(rows);
        input = s.pre_norm ? arena.next<T>(rows * d) : stream;
        memory = arena.next<Unit<T>>(steps_of<T>(s.memory_rows) * d);
        const T* x = input;
        int64_t number = 0;
        auto begin = [&] {
            SavedSublayer<T> saved = {x, arena.next<T>(rows * d)};
            saved.output = s.pre_norm ? saved.sum : stream;
            saved.packed_input = arena.next<Unit<T>>(steps * d);
            saved.statistics = arena.next<Statistics>(rows), saved.number = number++;
            x = saved.output;
            return saved;
        };
        auto attention = [&](bool of_itself) {
            SavedSublayer<T> saved = begin();
            const int64_t queries = s.query_columns(), keys = s.key_columns() + s.value_columns();
            saved.queries = arena.next<T>(rows * (of_itself ? queries + keys : queries));
            saved.keys = of_itself ? nullptr : arena.next<T>(s.memory_rows * keys);
            saved.context = arena.next<Unit<T>>(steps * s.context_columns());
            saved.log_sums = arena.next<float>(rows * s.heads);
            return saved;
        };
        for (int64_t layer = 0; layer < s.layers; layer++) {
            self.push_back(attention(true));
            if (s.memory_length) cross.push_back(attention(false));
            feed_forward.push_back(begin());
            feed_forward.back().hidden = arena.next<Unit<T>>(steps * s.hidden_width());
        }
        result = x;
        bytes = arena.at - static_cast<char*>(s.saved);
    }
};

// One attention of a layer: its weights, the rows of its queries and keys, and how wide these are. In self-attention
// queries, keys and values of a position lie side by side, else keys and values do.
struct AttentionParameters {
    bool self;
    const Norm& norm;
    const Linear &query, &key, &value, &output;
    int64_t rows, memory;  // memory: rows of keys, 0 in self-attention
    int64_t queries, keys, values, context;  // columns
    int64_t query_width, key_width;          // from row to row

    AttentionParameters(const CompactStack& s, const Layer& layer, bool self)
        : self(self), norm(self ? layer.self_norm : layer.cross_norm), query(self ? layer.query : layer.cross_query),
          key(self ? layer.key : layer.cross_key), value(self ? layer.value : layer.cross_value),
          output(self ? layer.output : layer.cross_output), rows(s.rows), memory(self ? 0 : s.memory_rows),
          queries(s.query_columns()), keys(s.key_columns()), values(s.value_columns()), context(s.context_columns()),
          query_width(self ? queries + keys + values : queries), key_width(self ? query_width : keys + values) {}

    // Where keys begin in a row of queries, or of their own.
    int64_t first_key() const { return self ? queries : 0; }
};
