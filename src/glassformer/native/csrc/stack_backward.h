// The gradient of a whole stack of layers, from the last sub-layer to the first.
#pragma once
#include "stack_forward.h"

namespace {

// The gradient of a sub-layer's residual sum, in place in `d`, and of the sub-layer's own result, which is returned and
// packed into column blocks.
template <class T>
const T* add_norm_backward(
    const CompactStack& s, const SavedSublayer<T>& saved, const Norm& norm, int64_t row, int64_t count, T* d,
    Unit<T>* panels, float* sums
) {
    const int64_t size = s.d_model;
    const T* gamma = values_of<T>(norm.weight);
    const Dropout by = dropout_at(s, saved.number, s.threshold);
    auto some = workspace<float>(ROW, size);
    auto d_y = workspace<T>(BLOCK_INPUT, BLOCK * size);
    for (int64_t i = row; i < row + count; i++) {
        for (int64_t j = 0; j < size; j += LANES) store(some + j, read(d + i * size + j));
        if (!s.pre_norm) {
            float* chunk = sums + i / CHUNK * 2 * size;
            normalize_row_backward(saved.sum + i * size, saved.statistics[i], gamma, !norm.rms, size, some, chunk);
            for (int64_t j = 0; j < size; j += LANES) write(d + i * size + j, load(some + j));
        }
        drop_row(some, i * size, by, size, d_y + (i - row) * size);
    }
    pack_panels<COLUMN_BLOCK>(d_y, size, count, size, row / Step<T>::ENTRIES, steps_of<T>(s.rows), panels);
    return d_y;
}

// Adds d_input, the gradient of the sub-layer's input, through its norm if it is pre-norm, to that of the residual
// stream.
template <class T>
void add_sublayer_gradient(
    const CompactStack& s, const SavedSublayer<T>& saved, const Norm& norm, int64_t row, int64_t count,
    float* d_input, T* d, float* sums
) {
    const int64_t size = s.d_model;
    const T* gamma = values_of<T>(norm.weight);
    for (int64_t i = row; i < row + count; i++) {
        float* some = d_input + (i - row) * size;
        if (s.pre_norm) {
            float* chunk = sums + i / CHUNK * 2 * size;
            normalize_row_backward(saved.input + i * size, saved.statistics[i], gamma, !norm.rms, size, some, chunk);
        }
        for (int64_t j = 0; j < size; j += LANES) write(d + i * size + j, read(d + i * size + j) + load(some + j));
    }
}

// Of a projection by weights and, if it has one, bias: d_y in column blocks, x in panels.
template <class T>
auto gradients_of(
    const Linear& by, const Unit<T>* d_y, int64_t outputs, const Unit<T>* x, int64_t inputs, int64_t rows
) {
    auto put_sums = [&by](int64_t output, const float* sums) {
        if (by.bias.gradient) put(sums, COLUMN_BLOCK, static_cast<T*>(by.bias.gradient) + output);
    };
    auto put_products = [&by, inputs](int64_t output, int64_t column, const float* sums) {
        put(sums, PANEL, static_cast<T*>(by.weight.gradient) + output * inputs + column);
    };
    return weight_gradient_product(d_y, outputs, x, inputs, steps_of<T>(rows), put_products, put_sums);
}

// γ's and β's gradients from those of each CHUNK.
template <class T>
auto norm_gradient(const float* sums, int64_t rows, int64_t size, const Parameter& weight, const Parameter& bias) {
    return loop(size, COLUMN_BLOCK, [=](int64_t from, int64_t end) {
        for (int64_t i = from; i < end; i += LANES) {
            Floats gamma = {}, beta = {};
            for (int64_t chunk = 0; chunk * CHUNK < rows; chunk++) {
                gamma += load(sums + chunk * 2 * size + i);
                beta += load(sums + chunk * 2 * size + size + i);
            }
            write(static_cast<T*>(weight.gradient) + i, gamma);
            if (bias.gradient) write(static_cast<T*>(bias.gradient) + i, beta);
        }
    });
}

float* sums_of_chunks(int64_t rows, int64_t d) {
    const int64_t count = (rows + CHUNK - 1) / CHUNK * 2 * d;
    auto sums = workspace<float>(NORM_SUMS, count);
    std::fill(sums, sums + count, 0.0f);
    return sums;
}

// From one row of a panel, of two in bfloat16.
Floats row_of(const float* panel, int64_t) { return load(panel); }
Floats row_of(const Pair* panel, int64_t row) {
    const Ints both = *reinterpret_cast<const Ints*>(panel);
    return (Floats)(row % 2 ? both & static_cast<int32_t>(0xffff0000) : both << 16);
}

// From the gradients of a panel of activations, from `column` on, to those of what they were computed from, and the
// activations again.
template <class T>
void put_hidden_gradient(
    const CompactStack& s, const SavedSublayer<T>& saved, int64_t row, int64_t count, int64_t column,
    const float* gradients, T* some, T* activations
) {
    const int64_t steps = steps_of<T>(s.rows), step = row / Step<T>::ENTRIES, all = s.hidden_width();
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < PANEL; j += LANES) {
            const Unit<T>* at = saved.hidden + column * steps + (step + i / Step<T>::ENTRIES) * PANEL + j;
            const Floats gradient = load(gradients + i * PANEL + j);
            T* to = some + i * all + column + j;
            if (s.gated()) {
                const Floats other = row_of(at + s.d_ff * steps, i);
                const ActivationGradient of = activation_gradient(s.form(), row_of(at, i), gradient * other);
                write(to, of.gradient), write(to + s.d_ff, gradient * of.activated);
                write(activations + i * s.d_ff + column + j, of.activated * other);
            } else {
                const ActivationGradient of = activation_gradient(s.form(), row_of(at, i), gradient);
                write(to, of.gradient), write(activations + i * s.d_ff + column + j, of.activated);
            }
        }
}

template <class T>
void feed_forward_backward(const CompactStack& s, const Layer& layer, const SavedSublayer<T>& saved, T* d) {
    const int64_t size = s.d_model, wide = s.d_ff, all = s.hidden_width(), second = all - wide;
    const int64_t rows = s.rows, steps = steps_of<T>(rows), inner_steps = steps_of<T>(all);
    const Norm& norm = layer.feed_forward_norm;
    auto inner = workspace<Unit<T>>(WEIGHTS, size * inner_steps),
         outer = workspace<Unit<T>>(OUTER_WEIGHTS, wide * steps_of<T>(size));
    auto sums = sums_of_chunks(rows, size);
    auto d_y = workspace<Unit<T>>(D_RESULT, steps * size), d_hidden = workspace<Unit<T>>(D_INNER, steps * all);
    const bool saved_activations = s.form() == RELU && !s.gated();
    auto activations = saved_activations ? saved.hidden : workspace<Unit<T>>(ACTIVATED, steps * wide);
    auto pack = [&](const Linear& by, int64_t outputs, int64_t first) {
        return packing_rows(static_cast<const T*>(by.weight.value), size, outputs, size, first, inner_steps, inner);
    };
    parallel(
        s.threads,
        packing_rows(static_cast<const T*>(layer.outer.weight.value), wide, size, wide, 0, steps_of<T>(size), outer),
        pack(layer.gate, second, 0), pack(layer.inner, wide, steps_of<T>(second))
    );
    auto backward = [&](int64_t row, int64_t count) {
        const T* d_output = add_norm_backward(s, saved, norm, row, count, d, d_y, sums);
        auto some = workspace<T>(BLOCK_HIDDEN, BLOCK * all), again = workspace<T>(BLOCK_ACTIVATED, BLOCK * wide);
        const int64_t step = row / Step<T>::ENTRIES;
        auto put_gradient = [&](int64_t column, float* gradients) {
            put_hidden_gradient(s, saved, row, count, column, gradients, some, again);
            if (!saved_activations)
                pack_panels<PANEL>(again + column, wide, count, PANEL, step, steps, activations + column * steps);
            if ((column + PANEL) % COLUMN_BLOCK) return;
            for (int64_t first = column + PANEL - COLUMN_BLOCK; first < all; first += wide)
                pack_panels<COLUMN_BLOCK>(
                    some + first, all, count, COLUMN_BLOCK, step, steps, d_hidden + first * steps
                );
        };
        multiply_block(rows_at(d_output, size), count, outer, wide, steps_of<T>(size), put_gradient);
        auto d_input = workspace<float>(BLOCK_RESULT, BLOCK * size);
        multiply_to<T>(some, all, count, inner, size, all, nullptr, d_input);
        add_sublayer_gradient(s, saved, norm, row, count, d_input, d, sums);
    };
    parallel(s.threads, blocks(rows, backward));
    parallel(
        s.threads, gradients_of<T>(layer.outer, d_y, size, activations, wide, rows),
        gradients_of<T>(layer.gate, d_hidden, second, saved.packed_input, size, rows),
        gradients_of<T>(layer.inner, d_hidden + second * steps, wide, saved.packed_input, size, rows),
        norm_gradient<T>(sums, rows, size, norm.weight, norm.bias)
    );
}

// Of what attention gave, before W_O.
template <class T>
void context_gradient(
    const CompactStack& s, const AttentionParameters& by, const SavedSublayer<T>& saved, T* d, Unit<T>* d_y,
    T* d_context, float* sums
) {
    const int64_t size = s.d_model, steps = steps_of<T>(size), wide = by.context;
    auto back = workspace<Unit<T>>(OUTER_WEIGHTS, wide * steps);
    parallel(s.threads, packing_rows(static_cast<const T*>(by.output.weight.value), wide, size, wide, 0, steps, back));
    auto backward = [&](int64_t row, int64_t count) {
        const T* d_output = add_norm_backward(s, saved, by.norm, row, count, d, d_y, sums);
        multiply_block(rows_at(d_output, size), count, back, wide, steps, [&](int64_t column, const float* sums) {
            put_panel<T>(sums, count, nullptr, d_context + row * wide + column, wide);
        });
    };
    parallel(s.threads, blocks(by.rows, backward));
}

// Gradients of queries, keys and values, as rows and in column blocks; in self-attention all lie beside the queries.
template <class T>
struct AttentionGradients {
    T *queries, *keys;
    Unit<T> *query_panels, *key_panels;
};

// From the gradients of queries, keys and values to those of their inputs: by all three weights side by side, or, where
// keys and values come from a memory, by those of each input.
template <class T>
void projected_gradient(
    const CompactStack& s, const AttentionParameters& by, const SavedSublayer<T>& saved,
    const AttentionGradients<T>& of, T* d, float* d_memory, float* sums
) {
    const int64_t size = s.d_model, all = steps_of<T>(by.query_width), key_steps = steps_of<T>(by.key_width);
    auto queries = workspace<Unit<T>>(WEIGHTS, size * (all + key_steps));
    auto keys = by.self ? queries : queries + size * all;
    auto pack = [&](const Linear& weight, int64_t outputs, int64_t before, int64_t steps, Unit<T>* to) {
        const T* from = static_cast<const T*>(weight.weight.value);
        return packing_rows(from, size, outputs, size, steps_of<T>(before), steps, to);
    };
    parallel(
        s.threads, pack(by.query, by.queries, 0, all, queries), pack(by.key, by.keys, by.first_key(), key_steps, keys),
        pack(by.value, by.values, by.first_key() + by.keys, key_steps, keys)
    );
    auto back = [&](const T* from, int64_t width, int64_t row, int64_t count, int64_t rows, const Unit<T>* weights,
                    Unit<T>* panels) {
        auto some = workspace<float>(BLOCK_RESULT, BLOCK * size);
        pack_panels<COLUMN_BLOCK>(
            from + row * width, width, count, width, row / Step<T>::ENTRIES, steps_of<T>(rows), panels
        );
        multiply_to<T>(from + row * width, width, count, weights, size, width, nullptr, some);
        return some;
    };
    auto backward = [&](int64_t row, int64_t count) {
        float* some = back(of.queries, by.query_width, row, count, by.rows, queries, of.query_panels);
        add_sublayer_gradient(s, saved, by.norm, row, count, some, d, sums);
    };
    auto memory_backward = [&](int64_t row, int64_t count) {
        const float* some = back(of.keys, by.key_width, row, count, by.memory, keys, of.key_panels);
        float* to = d_memory + row * size;
        for (int64_t i = 0; i < count * size; i += LANES) store(to + i, load(to + i) + load(some + i));
    };
    parallel(s.threads, blocks(by.rows, backward), blocks(by.memory, memory_backward));
}

template <class T>
void attend_backward(
    const CompactStack& s, const Layer& layer, const SavedSublayer<T>& saved, bool self, T* d,
    const Unit<T>* memory, float* d_memory
) {
    const AttentionParameters by(s, layer, self);
    const int64_t size = s.d_model, steps = steps_of<T>(by.rows), key_rows = self ? by.rows : by.memory;
    const int64_t key_steps = steps_of<T>(key_rows);
    auto sums = sums_of_chunks(by.rows, size);
    auto d_y = workspace<Unit<T>>(D_RESULT, steps * size);
    auto d_context = workspace<T>(D_CONTEXT, by.rows * by.context);
    AttentionGradients<T> of = {workspace<T>(D_QUERIES, by.rows * by.query_width)};
    of.query_panels = workspace<Unit<T>>(D_QUERY_PANELS, steps * by.query_width);
    of.keys = self ? of.queries + by.queries : workspace<T>(D_KEYS, by.memory * by.key_width);
    of.key_panels =
        self ? of.query_panels + by.queries * steps : workspace<Unit<T>>(D_KEY_PANELS, key_steps * by.key_width);
    context_gradient(s, by, saved, d, d_y, d_context, sums);
    attention_of<T>(s, by, saved, nullptr, of.queries, of.keys, d_context);
    if (self) rotate_heads(s, by, of.queries, s.sines_back);
    projected_gradient<T>(s, by, saved, of, d, d_memory, sums);
    const Unit<T>* key_input = self ? saved.packed_input : memory;
    parallel(
        s.threads, gradients_of<T>(by.output, d_y, size, saved.context, by.context, by.rows),
        gradients_of<T>(by.query, of.query_panels, by.queries, saved.packed_input, size, by.rows),
        gradients_of<T>(by.key, of.key_panels, by.keys, key_input, size, key_rows),
        gradients_of<T>(by.value, of.key_panels + by.keys * key_steps, by.values, key_input, size, key_rows),
        norm_gradient<T>(sums, by.rows, size, by.norm.weight, by.norm.bias)
    );
}

template <class T>
void stack_backward(const CompactStack& s) {
    const SavedStack<T> saved_stack(s);
    auto d = workspace<T>(D_STREAM, s.rows * s.d_model);
    unpad(s, s.cu_seqlens, s.d_result, s.length, d);
    auto d_memory = workspace<float>(D_MEMORY, s.memory_rows * s.d_model);
    std::fill(d_memory, d_memory + s.memory_rows * s.d_model, 0.0f);
    for (int64_t layer = s.layers; layer-- > 0;) {
        feed_forward_backward(s, s.layer[layer], saved_stack.feed_forward[layer], d);
        if (s.memory_length)
            attend_backward(s, s.layer[layer], saved_stack.cross[layer], false, d, saved_stack.memory, d_memory);
        attend_backward(s, s.layer[layer], saved_stack.self[layer], true, d, saved_stack.memory, d_memory);
    }
    pad<T>(s, s.cu_seqlens, d, s.length, s.d_x);
    if (s.memory_length) pad<T>(s, s.memory_cu_seqlens, d_memory, s.memory_length, s.d_memory);
}

}  // namespace
