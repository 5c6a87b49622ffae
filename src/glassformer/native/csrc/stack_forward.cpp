// Forward pass of a stack of layers in training (section 3.1).
//
// No memory is allocated between products. Dropout, residual sum and LayerNorm of a row are computed while it is in the
// cache.
#include "api.h"
#include "stack.h"

namespace {

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

// The bias from `column` on, or null.
template <class T>
const T* bias_of(const Linear& linear, int64_t column = 0) {
    return linear.bias.value ? values_of<T>(linear.bias) + column : nullptr;
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
            saved.statistics[row + i] = normalize(norm, input + i * d, d, normalized + i * d);
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
        if (!s.pre_norm) saved.statistics[i] = normalize(norm, saved.sum + i * d, d, saved.output + i * d);
    }
}

// Packing of a weight for x Wᵀ; nothing for a missing one, which has no outputs.
template <class T>
auto packing_weight(const Linear& linear, Unit<T>* to) {
    return packing_for_outputs(values_of<T>(linear.weight), linear.outputs, linear.inputs, to);
}

// Packed weights of one attention: queries, keys and values consecutively, then the output.
template <class T>
struct PackedAttention {
    Panels<T> queries, keys, values, output;

    PackedAttention(const UnpaddedStack& s, const AttentionParameters& p) {
        const int64_t d = s.d_model, steps = steps_of<T>(d);
        queries = workspace<Unit<T>>(WEIGHTS, (p.queries + p.keys + p.values) * steps + d * steps_of<T>(p.context));
        keys = queries + p.queries * steps, values = keys + p.keys * steps, output = values + p.values * steps;
        parallel(
            s.threads, packing_weight<T>(p.query, queries), packing_weight<T>(p.key, keys),
            packing_weight<T>(p.value, values), packing_weight<T>(p.output, output)
        );
    }
};

template <class T>
void attention_forward(
    const UnpaddedStack& s, const Layer& layer, const SavedSublayer<T>& saved, bool self, const T* memory
) {
    const int64_t d = s.d_model, steps = steps_of<T>(d);
    const AttentionParameters p(s, layer, self);
    const PackedAttention<T> packed(s, p);
    auto context = workspace<T>(CONTEXT, p.rows * p.context);
    auto project = [&](const T* from, int64_t count, const Linear& projection, const Unit<T>* weights, int64_t columns,
                       T* to, int64_t stride) {
        multiply_block(rows_at(from, d), count, weights, columns, steps, [&](int64_t column, const float* sums) {
            put_panel(sums, count, bias_of<T>(projection, column), to + column, stride);
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
    if (self) rotate_heads(s, p, saved.queries, s.rotary.sines);
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

// Finish a panel of hidden values of a block: add the bias; pack the activation's input, or the output of an ungated
// ReLU, for the backward pass; write the activations to the rows `hidden`, or their inputs if there is a gate.
template <class T>
void put_hidden_panel(
    const UnpaddedStack& s, const SavedSublayer<T>& saved, int64_t row, int64_t count, int64_t column,
    const float* sums, const T* bias, T* hidden
) {
    const int64_t stride = s.hidden_width(), steps = steps_of<T>(saved.rows);
    Unit<T>* panel = saved.hidden + column * steps + row / PackedStep<T>::ENTRIES * PANEL;
    with_activation(s.gated() ? NONE : s.activation_kind(), [=](auto activation) mutable {
        auto put = [=](int64_t i, int64_t j) {
            const Floats product = load(sums + i * PANEL + j), sum = bias ? product + read(bias + j) : product;
            const Floats stored = as_stored(hidden, activation == RELU ? activated(RELU, sum) : sum);
            write(hidden + i * stride + column + j, activated(activation, stored));
            return stored;
        };
        for (int64_t i = 0; i < count; i += PackedStep<T>::ENTRIES, panel += PANEL) {
            fetch_line(hidden + i * stride + column + PANEL), fetch_line(panel + steps * PANEL);
            for (int64_t j = 0; j < PANEL; j += LANES) {
                const Floats upper = put(i, j), lower = has_next<T>(i, count) ? put(i + 1, j) : Floats{};
                put_units(upper, lower, panel, j);
            }
        }
    });
}

// Replace the first `count` numbers of a row by their activations, times the next `count`.
template <class T>
void apply_gate(const UnpaddedStack& s, T* hidden, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES)
        write(hidden + i, activated(s.activation_kind(), read(hidden + i)) * read(hidden + count + i));
}

template <class T>
void feed_forward_forward(const UnpaddedStack& s, const Layer& layer, const SavedSublayer<T>& saved) {
    const int64_t d = s.d_model, wide = s.d_ff, all = s.hidden_width(), gate_width = all - wide, rows = saved.rows;
    const int64_t steps = steps_of<T>(d);
    auto inner = workspace<Unit<T>>(WEIGHTS, all * steps),
         outer = workspace<Unit<T>>(OUTER_WEIGHTS, d * steps_of<T>(wide));
    parallel(
        s.threads, packing_weight<T>(layer.gate, inner), packing_weight<T>(layer.inner, inner + gate_width * steps),
        packing_weight<T>(layer.outer, outer)
    );
    auto forward = [&](int64_t row, int64_t count) {
        auto hidden = workspace<T>(BLOCK_HIDDEN, BLOCK * all);
        auto put_hidden = [&](int64_t column, const float* sums) {
            const T* bias =
                column < gate_width ? bias_of<T>(layer.gate, column) : bias_of<T>(layer.inner, column - gate_width);
            put_hidden_panel(s, saved, row, count, column, sums, bias, hidden);
        };
        const T* input = sublayer_input(s, saved, layer.feed_forward_norm, row, count);
        multiply_block(rows_at(input, d), count, inner, all, steps, put_hidden);
        for (int64_t i = 0; s.gated() && i < count; i++) apply_gate(s, hidden + i * all, wide);
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
            saved.final_statistics[i] = normalize(s.final_norm, saved.result + i * d, d, normalized + i * d);
    });
    return normalized;
}

}  // namespace

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
        parallel(s.threads, packing_rows(memory, s.memory_rows, s.d_model, 0, steps, saved_stack.memory));
    }
    for (int64_t layer = 0; layer < s.n_layers; layer++) {
        attention_forward(s, s.layers[layer], saved_stack.self[layer], true, memory);
        if (s.memory_length) {
            const SavedSublayer<T>& cross = saved_stack.cross[layer];
            if (s.cross_input && layer == s.cross_layer) pad<T>(s, s.cu_seqlens, cross.input, s.length, s.cross_input);
            attention_forward(s, s.layers[layer], cross, false, memory);
        }
        feed_forward_forward(s, s.layers[layer], saved_stack.feed_forward[layer]);
    }
    auto result = static_cast<T*>(s.result);
    const T* rows = final_rows(s, saved_stack);
    if (!s.selected) pad<T>(s, s.cu_seqlens, rows, s.length, result);
    else if (s.selects || s.every_row) put_selected(s, rows, result);
    else gather_rows(s, rows, s.d_model, result);
}

template void stack_forward<float>(const UnpaddedStack&);
#if HAS_BFLOAT16
template void stack_forward<uint16_t>(const UnpaddedStack&);
#endif
