// Forward pass of a stack of layers in training (section 3.1).
//
// No memory is allocated between products. Dropout, residual sum and LayerNorm of a row are computed while it is in the
// cache.
#pragma once
#include "stack_layout.h"

namespace {

Dropout dropout_at(const UnpaddedStack& s, int64_t sublayer, int32_t threshold) {
    return {
        s.seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(2 * sublayer + 1), threshold, 256.0f / (256 - threshold)
    };
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

// Copy the rows of the selected tokens; those of padding are 0.
template <class T>
void gather_rows(const UnpaddedStack& s, const T* from, int64_t width, T* to) {
    parallel_for(s.threads, s.selected_count, CHUNK, [&](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; i++) {
            const int64_t row = s.selected_rows[i];
            if (row < 0) std::fill(to + i * width, to + (i + 1) * width, T{});
            else std::copy(from + row * width, from + (row + 1) * width, to + i * width);
        }
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

// Write the sums of a panel, plus the bias, to rows of `to`.
template <class T, class X>
void put_panel(const float* sums, int64_t rows, const T* bias, X* to, int64_t stride) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < PANEL; j += LANES) {
            const Floats values = load(sums + i * PANEL + j);
            write(to + i * stride + j, bias ? values + read(bias + j) : values);
        }
}

// The bias from `column` on, or null.
template <class T>
const T* bias_of(const Linear& linear, int64_t column = 0) {
    return linear.bias.value ? static_cast<const T*>(linear.bias.value) + column : nullptr;
}

template <class T>
Statistics normalize_row(const UnpaddedStack& s, const Norm& norm, const T* x, T* to) {
    const Statistics statistics = statistics_of(x, norm.epsilon, !norm.rms, s.d_model);
    apply_norm(x, statistics, values_of<T>(norm.weight), values_of<T>(norm.bias), s.d_model, to);
    return statistics;
}

// Input of a sub-layer's first product for `count` rows, normalized if pre-norm, and saved in panels.
template <class T>
const T* sublayer_input(
    const UnpaddedStack& s, const SavedSublayer<T>& saved, const Norm& norm, int64_t row, int64_t count
) {
    const int64_t d = s.d_model;
    const T* input = saved.input + row * d;
    if (s.pre_norm) {
        auto normalized = workspace<T>(BLOCK_INPUT, BLOCK * d);
        for (int64_t i = 0; i < count; i++)
            saved.statistics[row + i] = normalize_row(s, norm, input + i * d, normalized + i * d);
        input = normalized;
    }
    pack_panels<PANEL>(input, d, count, d, row / PackedStep<T>::ENTRIES, steps_of<T>(saved.rows), saved.packed_input);
    return input;
}

// Dropout of the sub-layer's result y, the residual sum x + y and, if post-norm, LayerNorm.
template <class T>
void add_norm_forward(
    const UnpaddedStack& s, const SavedSublayer<T>& saved, const Norm& norm, const T* x, int64_t row, int64_t count,
    const float* y
) {
    const int64_t d = s.d_model;
    const Dropout dropout = dropout_at(s, saved.number, s.threshold);
    for (int64_t i = row; i < row + count; i++) {
        add_dropped(x + i * d, y + (i - row) * d, i * d, dropout, d, saved.sum + i * d);
        if (!s.pre_norm) saved.statistics[i] = normalize_row(s, norm, saved.sum + i * d, saved.output + i * d);
    }
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
    Attention a = {s.batch, s.heads, s.length, self ? s.length : s.memory_length, s.d_k, s.d_v};
    a.kv_heads = s.kv_heads;
    a.cu_seqlens_q = s.cu_seqlens.data(), a.cu_seqlens_k = (self ? s.cu_seqlens : s.memory_cu_seqlens).data();
    const T* from = self ? saved.queries + p.queries : saved.keys;
    a.q = rows(saved.queries, s.d_k, p.query_width), a.k = rows(from, s.d_k, p.key_width);
    a.v = rows(from + p.keys, s.d_v, p.key_width), a.context = rows(context, s.d_v, p.context);
    if (backward) {
        const T* to = self ? d_queries + p.queries : d_keys;
        a.d_q = rows(d_queries, s.d_k, p.query_width), a.d_k_ = rows(to, s.d_k, p.key_width);
        a.d_v_ = rows(to + p.keys, s.d_v, p.key_width), a.d_context = rows(d_context, s.d_v, p.context);
    }
    const TrainingMask& mask = self ? s.mask : s.memory_mask;
    a.mask = mask.data, a.mask_batch = mask.batch, a.mask_head = mask.head;
    a.mask_query = mask.query, a.mask_key = mask.key;
    a.log_sums = saved.log_sums, a.seed = dropout_at(s, saved.number, 0).seed + 1;
    a.threshold = s.attention_threshold, a.bfloat16 = s.bfloat16, a.threads = s.threads;
    attend_batches<T>(a, backward);
}

// Rotate the adjacent queries and keys in x by the angles of their positions.
template <class T>
void rotate_heads(const UnpaddedStack& s, const AttentionParameters& p, T* x, const float* sines) {
    if (!s.cosines) return;
    const Sequences both = {x, 0, s.d_k, p.query_width};
    rotate<T>(
        {s.batch, s.heads + s.kv_heads, s.length, s.d_k, both, both, s.cosines, sines, s.bfloat16, s.threads,
         s.cu_seqlens.data()}
    );
}

// Packed weights of one attention: queries, keys and values consecutively, then the output.
template <class T>
struct PackedAttention {
    Panels<T> queries, keys, values, output;

    PackedAttention(const UnpaddedStack& s, const AttentionParameters& p) {
        const int64_t d = s.d_model, steps = steps_of<T>(d);
        queries = workspace<Unit<T>>(WEIGHTS, (p.queries + p.keys + p.values) * steps + d * steps_of<T>(p.context));
        keys = queries + p.queries * steps, values = keys + p.keys * steps, output = values + p.values * steps;
        auto pack = [](const Linear& weight, int64_t outputs, int64_t inputs, Unit<T>* to) {
            return packing_for_outputs(static_cast<const T*>(weight.weight.value), outputs, inputs, to);
        };
        parallel(
            s.threads, pack(p.query, p.queries, d, queries), pack(p.key, p.keys, d, keys),
            pack(p.value, p.values, d, values), pack(p.output, d, p.context, output)
        );
    }
};

template <class T>
void attend_forward(
    const UnpaddedStack& s, const Layer& layer, const SavedSublayer<T>& saved, bool self, const T* memory
) {
    const int64_t d = s.d_model, steps = steps_of<T>(d);
    const AttentionParameters p(s, layer, self);
    const PackedAttention<T> packed(s, p);
    auto context = workspace<T>(CONTEXT, p.rows * p.context);
    auto project = [&](const T* from, int64_t count, const Linear& part, const Unit<T>* weights, int64_t columns, T* to,
                       int64_t stride) {
        multiply_block(rows_at(from, d), count, weights, columns, steps, [&](int64_t column, const float* sums) {
            put_panel(sums, count, bias_of<T>(part, column), to + column, stride);
        });
    };
    auto project_keys = [&](const T* from, int64_t count, T* to) {
        project(from, count, p.key, packed.keys, p.keys, to, p.key_width);
        project(from, count, p.value, packed.values, p.values, to + p.keys, p.key_width);
    };
    auto project_rows = [&](int64_t row, int64_t count) {
        T* to = saved.queries + row * p.query_width;
        const T* input = sublayer_input(s, saved, p.norm, row, count);
        project(input, count, p.query, packed.queries, p.queries, to, p.query_width);
        if (self) project_keys(input, count, to + p.queries);
    };
    auto project_memory = [&](int64_t row, int64_t count) {
        project_keys(memory + row * d, count, saved.keys + row * p.key_width);
    };
    parallel(s.threads, blocks(p.rows, project_rows), blocks(p.memory, project_memory));
    if (self) rotate_heads(s, p, saved.queries, s.sines);
    attention_of<T>(s, p, saved, false, context, nullptr, nullptr, nullptr);
    const T *contexts = context, *x = saved.input;
    if (saved.selects) {
        auto needed = workspace<T>(SELECTED_CONTEXT, saved.results * p.context);
        auto residual = workspace<T>(SELECTED, saved.results * d);
        gather_rows(s, contexts, p.context, needed), gather_rows(s, x, d, residual);
        contexts = needed, x = residual;
    }
    auto project_context = [&](int64_t row, int64_t count) {
        auto y = workspace<float>(BLOCK_RESULT, BLOCK * d);
        const T* rows = contexts + row * p.context;
        const int64_t step = row / PackedStep<T>::ENTRIES;
        pack_panels<PANEL>(rows, p.context, count, p.context, step, steps_of<T>(saved.results), saved.context);
        multiply_to(rows, p.context, count, packed.output, d, p.context, bias_of<T>(p.output), y);
        add_norm_forward(s, saved, p.norm, x, row, count, y);
    };
    parallel(s.threads, blocks(saved.results, project_context));
}

// Activation of `count` numbers, times `other` if it is a gate; `other` is null if not.
template <class T>
void activate(const UnpaddedStack& s, const T* hidden, const T* other, int64_t count, T* to) {
    for (int64_t i = 0; i < count; i += LANES) {
        const Floats values = activated(s.activation_kind(), read(hidden + i));
        write(to + i, other ? values * read(other + i) : values);
    }
}

// Write the sums of a panel, plus the bias, with ReLU if `relu`, to rows of `to`, and pack them.
template <class T>
void put_hidden_panel(
    const float* sums, int64_t rows, const T* bias, bool relu, T* to, int64_t stride, Unit<T>* panel
) {
    auto values = [=](int64_t row, int64_t column) {
        const Floats values = load(sums + row * PANEL + column), sum = bias ? values + read(bias + column) : values;
        return relu ? activated(RELU, sum) : sum;
    };
    put_and_pack(rows, to, stride, panel, values);
}

template <class T>
void feed_forward_forward(const UnpaddedStack& s, const Layer& layer, const SavedSublayer<T>& saved) {
    const int64_t d = s.d_model, wide = s.d_ff, all = s.hidden_width(), gate_width = all - wide, rows = saved.rows;
    const int64_t steps = steps_of<T>(d);
    const bool in_registers = s.activation_kind() == RELU && !s.gated();  // before the sums are stored
    auto inner = workspace<Unit<T>>(WEIGHTS, all * steps),
         outer = workspace<Unit<T>>(OUTER_WEIGHTS, d * steps_of<T>(wide));
    auto pack = [](const Linear& weight, int64_t outputs, int64_t inputs, Unit<T>* to) {
        return packing_for_outputs(static_cast<const T*>(weight.weight.value), outputs, inputs, to);
    };
    parallel(
        s.threads, pack(layer.gate, gate_width, d, inner), pack(layer.inner, wide, d, inner + gate_width * steps),
        pack(layer.outer, d, wide, outer)
    );
    auto forward = [&](int64_t row, int64_t count) {
        auto hidden = workspace<T>(BLOCK_HIDDEN, BLOCK * all);
        auto put_hidden = [&](int64_t column, const float* sums) {
            const T* bias =
                column < gate_width ? bias_of<T>(layer.gate, column) : bias_of<T>(layer.inner, column - gate_width);
            Unit<T>* panel = saved.hidden + column * steps_of<T>(rows) + row / PackedStep<T>::ENTRIES * PANEL;
            put_hidden_panel(sums, count, bias, in_registers, hidden + column, all, panel);
        };
        const T* input = sublayer_input(s, saved, layer.feed_forward_norm, row, count);
        multiply_block(rows_at(input, d), count, inner, all, steps, put_hidden);
        for (int64_t i = 0; !in_registers && i < count; i++) {
            T* values = hidden + i * all;
            activate(s, values, s.gated() ? values + wide : nullptr, wide, values);
        }
        auto y = workspace<float>(BLOCK_RESULT, BLOCK * d);
        multiply_to<T>(hidden, all, count, outer, d, wide, bias_of<T>(layer.outer), y);
        add_norm_forward(s, saved, layer.feed_forward_norm, saved.input, row, count, y);
    };
    parallel(s.threads, blocks(rows, forward));
}

// Rows of the stack's result: those of the last layer, or their norm.
template <class T>
const T* final_rows(const UnpaddedStack& s, const SavedStack<T>& saved) {
    if (!s.final_norm.weight.value) return saved.result;
    const int64_t d = s.d_model;
    auto normalized = workspace<T>(STREAM, s.last_rows * d);  // pre-norm leaves it free
    parallel_for(s.threads, s.last_rows, CHUNK, [&](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; i++)
            saved.final_statistics[i] = normalize_row(s, s.final_norm, saved.result + i * d, normalized + i * d);
    });
    return normalized;
}

template <class T>
void stack_forward(const UnpaddedStack& s) {
    const SavedStack<T> saved_stack(
        s, s.pre_norm ? nullptr : workspace<T>(STREAM, std::max(s.rows, s.last_rows) * s.d_model)
    );
    if (s.float_x) unpad<float>(s, s.cu_seqlens, s.x, s.length, saved_stack.input);
    else unpad<T>(s, s.cu_seqlens, s.x, s.length, saved_stack.input);
    auto memory = workspace<T>(MEMORY, s.memory_rows * s.d_model);
    if (s.memory_length) {
        unpad<T>(s, s.memory_cu_seqlens, s.memory, s.memory_length, memory);
        const int64_t steps = steps_of<T>(s.memory_rows);
        parallel(s.threads, packing_rows(memory, s.d_model, s.memory_rows, s.d_model, 0, steps, saved_stack.memory));
    }
    for (int64_t layer = 0; layer < s.layers; layer++) {
        attend_forward(s, s.layer[layer], saved_stack.self[layer], true, memory);
        if (s.memory_length) {
            const SavedSublayer<T>& cross = saved_stack.cross[layer];
            if (s.cross_input && layer == s.cross_layer) pad<T>(s, s.cu_seqlens, cross.input, s.length, s.cross_input);
            attend_forward(s, s.layer[layer], cross, false, memory);
        }
        feed_forward_forward(s, s.layer[layer], saved_stack.feed_forward[layer]);
    }
    auto result = static_cast<T*>(s.result);
    const T* rows = final_rows(s, saved_stack);
    if (!s.selected) pad<T>(s, s.cu_seqlens, rows, s.length, result);
    else if (s.selects || s.every_row) put_selected(s, rows, result);
    else gather_rows(s, rows, s.d_model, result);
}

}  // namespace
