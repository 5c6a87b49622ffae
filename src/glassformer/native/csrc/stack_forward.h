// The forward pass of a whole stack of layers in training (section 3.1), and what it saves for the backward pass.
//
// Saved activations lie in one block of memory of the caller, in the order in which `SavedStack` lays it out. Nothing
// is allocated between two products, and dropout, residual sum and LayerNorm of a row are computed while it is in the
// cache.
#pragma once
#include "attention.h"
#include "elementwise.h"
#include "gemm.h"

struct Projection {
    Parameter weight, bias;  // bias: or nulls
};

struct TrainedNorm {
    Parameter weight, bias;  // bias: or nulls
};

struct TrainedLayer {
    TrainedNorm self_norm, cross_norm, feed_forward_norm;
    Projection query, key, value, output;
    Projection cross_query, cross_key, cross_value, cross_output;
    Projection inner, outer;
};

struct Mask {
    const uint8_t* seen;  // 1: may be seen; or null
    int64_t batch, head, query, key;
};

struct TrainedStack {
    int64_t layers, batch, length, memory_length, d_model, heads, d_ff;  // memory_length: 0 where there is no memory
    const TrainedLayer* layer;
    const void *x, *memory;
    Mask mask, memory_mask;
    const float *cosines, *sines, *sines_back;  // of rotary positions, or null
    void *result, *saved;
    const void* d_result;
    void *d_x, *d_memory;
    uint64_t seed;
    float epsilon;
    int32_t threshold, attention_threshold, pre_norm, bfloat16, activation;
    int64_t threads;
};

// The first position of each sequence when they lie one behind the other without padding, and the end of the last.
// Padding is what stands behind the last position that any query may see.
static std::vector<int64_t> cu_seqlens_of(
    const Mask& mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys
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
    Unit<T> *context, *hidden;  // panels; hidden: the activation's input in feed-forward layers, of ReLU its output
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
            saved.queries = arena.next<T>(rows * (of_itself ? 3 * d : d));
            saved.keys = of_itself ? nullptr : arena.next<T>(s.memory_rows * 2 * d);
            saved.context = arena.next<Unit<T>>(steps * d), saved.log_sums = arena.next<float>(rows * s.heads);
            return saved;
        };
        for (int64_t layer = 0; layer < s.layers; layer++) {
            self.push_back(attention(true));
            if (s.memory_length) cross.push_back(attention(false));
            feed_forward.push_back(begin());
            feed_forward.back().hidden = arena.next<Unit<T>>(steps * s.d_ff);
        }
        result = x;
        bytes = arena.at - static_cast<char*>(s.saved);
    }
};

// One attention of a layer: its weights, the rows of its queries and keys, and how far apart these lie in memory.
struct AttentionParameters {
    bool self;
    const TrainedNorm& norm;
    const Projection &query, &key, &value, &output;
    int64_t rows, memory, query_width, key_width;  // memory: rows of keys, 0 in self-attention

    AttentionParameters(const CompactStack& s, const TrainedLayer& layer, bool self)
        : self(self), norm(self ? layer.self_norm : layer.cross_norm), query(self ? layer.query : layer.cross_query),
          key(self ? layer.key : layer.cross_key), value(self ? layer.value : layer.cross_value),
          output(self ? layer.output : layer.cross_output), rows(s.rows),
          memory(self ? 0 : s.memory_rows), query_width(self ? 3 * s.d_model : s.d_model),
          key_width(self ? 3 * s.d_model : 2 * s.d_model) {}
};

namespace {

Dropout dropout_at(const CompactStack& s, int64_t sublayer, int32_t threshold) {
    return {
        s.seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(2 * sublayer + 1), threshold, 256.0f / (256 - threshold)
    };
}

// work(first, count) for BLOCK rows at a time.
template <class Work>
auto blocks(int64_t rows, Work work) {
    return loop(rows, BLOCK, [=](int64_t row, int64_t end) { work(row, end - row); });
}

// Rows of `width` positions with padding → one behind the other without it.
template <class T>
void unpad(
    const CompactStack& s, const std::vector<int64_t>& cu_seqlens, const void* padded_rows, int64_t width, T* to
) {
    const T* from = static_cast<const T*>(padded_rows);
    parallel_for(s.threads, s.batch, 1, [&](int64_t b, int64_t) {
        std::copy(
            from + b * width * s.d_model, from + (b * width + cu_seqlens[b + 1] - cu_seqlens[b]) * s.d_model,
            to + cu_seqlens[b] * s.d_model
        );
    });
}

// And back; padding is 0.
template <class T, class X>
void pad(
    const CompactStack& s, const std::vector<int64_t>& cu_seqlens, const X* rows, int64_t width, void* padded_rows
) {
    parallel_for(s.threads, s.batch, 1, [&](int64_t b, int64_t) {
        T* to = static_cast<T*>(padded_rows) + b * width * s.d_model;
        const int64_t used = (cu_seqlens[b + 1] - cu_seqlens[b]) * s.d_model;
        put(rows + cu_seqlens[b] * s.d_model, used, to);
        std::fill(to + used, to + width * s.d_model, T{});
    });
}

// A panel's sums, plus the bias, to rows of `to`.
template <class T, class X>
void put_panel(const float* sums, int64_t rows, const T* bias, X* to, int64_t stride) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < PANEL; j += LANES) {
            const Floats values = load(sums + i * PANEL + j);
            write(to + i * stride + j, bias ? values + read(bias + j) : values);
        }
}

// The bias from `column` on, or null where there is none.
template <class T>
const T* bias_of(const Projection& by, int64_t column = 0) {
    return by.bias.value ? static_cast<const T*>(by.bias.value) + column : nullptr;
}

// The input of a sub-layer's first product, which is saved: some rows as they are or, if it is pre-norm, their norm.
template <class T>
const T* sublayer_input(
    const CompactStack& s, const SavedSublayer<T>& saved, const TrainedNorm& norm, int64_t row, int64_t count
) {
    const int64_t d = s.d_model;
    const T* input = saved.input + row * d;
    if (s.pre_norm) {
        auto normed = workspace<T>(BLOCK_INPUT, BLOCK * d);
        for (int64_t i = 0; i < count; i++)
            saved.statistics[row + i] =
                normalize_row(input + i * d, norm.weight, norm.bias, s.epsilon, d, normed + i * d);
        input = normed;
    }
    pack_panels<PANEL>(input, d, count, d, row / Step<T>::ENTRIES, steps_of<T>(s.rows), saved.packed_input);
    return input;
}

// Dropout of the sub-layer's result y, the residual sum and, if it is post-norm, LayerNorm.
template <class T>
void add_norm_forward(
    const CompactStack& s, const SavedSublayer<T>& saved, const TrainedNorm& norm, int64_t row, int64_t count,
    const float* y
) {
    const int64_t d = s.d_model;
    const Dropout by = dropout_at(s, saved.number, s.threshold);
    for (int64_t i = row; i < row + count; i++) {
        add_dropped(saved.input + i * d, y + (i - row) * d, i * d, by, d, saved.sum + i * d);
        if (!s.pre_norm)
            saved.statistics[i] =
                normalize_row(saved.sum + i * d, norm.weight, norm.bias, s.epsilon, d, saved.output + i * d);
    }
}

// Rows of `a` by packed weights, to f32 rows.
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

template <class T>
void attention_of(
    const CompactStack& s, const SavedSublayer<T>& saved, bool self, T* context, T* d_queries, T* d_keys,
    const T* d_context
) {
    const int64_t d = s.d_model, head = d / s.heads, wide = self ? 3 * d : d, keys = self ? s.length : s.memory_length;
    const int64_t key_wide = self ? 3 * d : 2 * d;
    auto rows = [&](const T* at, int64_t width) { return Sequences{const_cast<T*>(at), 0, head, width}; };
    Attention a = {s.batch, s.heads, s.length, keys, head, head};
    a.cu_seqlens_q = s.cu_seqlens.data(), a.cu_seqlens_k = (self ? s.cu_seqlens : s.memory_cu_seqlens).data();
    const T* from = self ? saved.queries + d : saved.keys;
    a.q = rows(saved.queries, wide), a.k = rows(from, key_wide), a.v = rows(from + d, key_wide);
    a.context = rows(context, d);
    if (d_context) {
        const T* to = self ? d_queries + d : d_keys;
        a.d_q = rows(d_queries, wide), a.d_k_ = rows(to, key_wide), a.d_v_ = rows(to + d, key_wide);
        a.d_context = rows(d_context, d);
    }
    const Mask& mask = self ? s.mask : s.memory_mask;
    a.mask = mask.seen, a.mask_batch = mask.batch, a.mask_head = mask.head;
    a.mask_query = mask.query, a.mask_key = mask.key;
    a.log_sums = saved.log_sums, a.seed = dropout_at(s, saved.number, 0).seed + 1;
    a.threshold = s.attention_threshold, a.bfloat16 = s.bfloat16, a.threads = s.threads;
    attend_all<T>(a, d_context);
}

// Queries and keys, side by side in x, by the angles of their positions.
template <class T>
void rotate_heads(const CompactStack& s, T* x, const float* sines) {
    if (!s.cosines) return;
    const int64_t d = s.d_model, head = d / s.heads;
    const Sequences both = {x, 0, head, 3 * d};
    rotate<T>(
        {s.batch, 2 * s.heads, s.length, head, both, both, s.cosines, sines, s.bfloat16, s.threads, s.cu_seqlens.data()}
    );
}

template <class T>
void attend_forward(
    const CompactStack& s, const TrainedLayer& layer, const SavedSublayer<T>& saved, bool self, const T* memory
) {
    const int64_t d = s.d_model, steps = steps_of<T>(d);
    const AttentionParameters by(s, layer, self);
    const Projection* const parts[] = {&by.query, &by.key, &by.value, &by.output};
    auto packed = workspace<Unit<T>>(WEIGHTS, 4 * d * steps);
    auto context = workspace<T>(CONTEXT, by.rows * d);
    auto pack = [&](int i) {
        return packing_for_outputs(static_cast<const T*>(parts[i]->weight.value), d, d, packed + i * d * steps);
    };
    parallel(s.threads, pack(0), pack(1), pack(2), pack(3));
    auto project = [&](const T* from, int64_t count, int first, int end, T* to, int64_t stride) {
        for (int i = first; i < end; i++)
            multiply_block(
                rows_at(from, d), count, packed + i * d * steps, d, steps, [&](int64_t column, const float* sums) {
                    put_panel(sums, count, bias_of<T>(*parts[i], column), to + (i - first) * d + column, stride);
                }
            );
    };
    auto project_rows = [&](int64_t row, int64_t count) {
        T* to = saved.queries + row * by.query_width;
        project(sublayer_input(s, saved, by.norm, row, count), count, 0, self ? 3 : 1, to, by.query_width);
    };
    auto project_memory = [&](int64_t row, int64_t count) {
        project(memory + row * d, count, 1, 3, saved.keys + row * by.key_width, by.key_width);
    };
    parallel(s.threads, blocks(by.rows, project_rows), blocks(by.memory, project_memory));
    if (self) rotate_heads(s, saved.queries, s.sines);
    attention_of<T>(s, saved, self, context, nullptr, nullptr, nullptr);
    auto project_context = [&](int64_t row, int64_t count) {
        auto y = workspace<float>(BLOCK_RESULT, BLOCK * d);
        const T* some = context + row * d;
        pack_panels<PANEL>(some, d, count, d, row / Step<T>::ENTRIES, steps_of<T>(by.rows), saved.context);
        multiply_to(some, d, count, packed + 3 * d * steps, d, d, bias_of<T>(by.output), y);
        add_norm_forward(s, saved, by.norm, row, count, y);
    };
    parallel(s.threads, blocks(by.rows, project_context));
}

template <class T>
void activate(const CompactStack& s, const T* hidden, int64_t count, T* to) {
    for (int64_t i = 0; i < count; i += LANES) write(to + i, activated(s.form(), read(hidden + i)));
}

template <class T>
void feed_forward_forward(const CompactStack& s, const TrainedLayer& layer, const SavedSublayer<T>& saved) {
    const int64_t d = s.d_model, wide = s.d_ff, rows = s.rows;
    auto inner = workspace<Unit<T>>(WEIGHTS, wide * steps_of<T>(d)),
         outer = workspace<Unit<T>>(OUTER_WEIGHTS, d * steps_of<T>(wide));
    parallel(
        s.threads, packing_for_outputs(static_cast<const T*>(layer.inner.weight.value), wide, d, inner),
        packing_for_outputs(static_cast<const T*>(layer.outer.weight.value), d, wide, outer)
    );
    auto forward = [&](int64_t row, int64_t count) {
        auto hidden = workspace<T>(BLOCK_HIDDEN, BLOCK * wide);
        auto put_hidden = [&](int64_t column, float* sums) {
            const T* bias = bias_of<T>(layer.inner, column);
            for (int64_t i = 0; s.form() == RELU && i < count * PANEL; i += LANES) {
                const Floats values = load(sums + i);
                store(sums + i, activated(RELU, bias ? values + read(bias + i % PANEL) : values));
            }
            put_panel<T>(sums, count, s.form() == RELU ? nullptr : bias, hidden + column, wide);
            const int64_t step = row / Step<T>::ENTRIES, steps = steps_of<T>(rows);
            pack_panels<PANEL>(hidden + column, wide, count, PANEL, step, steps, saved.hidden + column * steps);
        };
        const T* input = sublayer_input(s, saved, layer.feed_forward_norm, row, count);
        multiply_block(rows_at(input, d), count, inner, wide, steps_of<T>(d), put_hidden);
        if (s.form() != RELU) activate(s, hidden, count * wide, hidden);
        auto y = workspace<float>(BLOCK_RESULT, BLOCK * d);
        multiply_to<T>(hidden, wide, count, outer, d, wide, bias_of<T>(layer.outer), y);
        add_norm_forward(s, saved, layer.feed_forward_norm, row, count, y);
    };
    parallel(s.threads, blocks(rows, forward));
}

template <class T>
void stack_forward(const CompactStack& s) {
    const SavedStack<T> saved_stack(s, s.pre_norm ? nullptr : workspace<T>(STREAM, s.rows * s.d_model));
    unpad(s, s.cu_seqlens, s.x, s.length, saved_stack.input);
    auto memory = workspace<T>(MEMORY, s.memory_rows * s.d_model);
    if (s.memory_length) {
        unpad(s, s.memory_cu_seqlens, s.memory, s.memory_length, memory);
        const int64_t steps = steps_of<T>(s.memory_rows);
        parallel(s.threads, packing_rows(memory, s.d_model, s.memory_rows, s.d_model, 0, steps, saved_stack.memory));
    }
    for (int64_t layer = 0; layer < s.layers; layer++) {
        attend_forward(s, s.layer[layer], saved_stack.self[layer], true, memory);
        if (s.memory_length) attend_forward(s, s.layer[layer], saved_stack.cross[layer], false, memory);
        feed_forward_forward(s, s.layer[layer], saved_stack.feed_forward[layer]);
    }
    pad<T>(s, s.cu_seqlens, saved_stack.result, s.length, s.result);
}

}  // namespace
