// Gradients of a stack of layers, from the last sub-layer to the first.
#include "api.h"
#include "stack.h"

namespace {

// Backward pass of the norm of a row x: replaces its gradient d by that of x, which is also stored in float32 in d_row.
template <class T>
void norm_backward_in_place(
    const Norm& norm, const T* x, Statistics statistics, int64_t size, T* d, float* d_row, float* sums
) {
    put(d, size, d_row);
    normalize_backward(norm, x, statistics, size, d_row, sums);
    put(d_row, size, d);
}

// Gradient of a sub-layer's residual sum, in place in `d`, and of the sub-layer's result, returned and packed into
// column blocks. Without dropout these are the same: the rows of `d`, valid until it changes.
template <class T>
const T* add_norm_backward(
    const UnpaddedStack& s, const SavedSublayer<T>& saved, const Norm& norm, int64_t row, int64_t count, T* d,
    Unit<T>* panels, float* sums
) {
    const int64_t size = s.d_model;
    const Dropout dropout = dropout_at(s, saved.number, s.threshold);
    auto d_row = workspace<float>(ROW, size);
    auto dropped = dropout.threshold ? workspace<T>(BLOCK_INPUT, BLOCK * size) : nullptr;
    for (int64_t i = row; i < row + count && (dropout.threshold || !s.pre_norm); i++) {
        T* row_gradient = d + i * size;
        if (s.pre_norm) put(row_gradient, size, d_row);
        else
            norm_backward_in_place(
                norm, saved.sum + i * size, saved.statistics[i], size, row_gradient, d_row, sums + i / CHUNK * 2 * size
            );
        if (dropout.threshold) drop_row(d_row, i * size, dropout, size, dropped + (i - row) * size);
    }
    const T* d_y = dropout.threshold ? dropped : d + row * size;
    pack_panels<COLUMN_BLOCK>(d_y, size, count, size, row / PackedStep<T>::ENTRIES, steps_of<T>(saved.results), panels);
    return d_y;
}

// Add d_input, the gradient of the sub-layer's input, to the gradient of the residual stream; pre-norm goes through the
// norm.
template <class T>
void add_sublayer_gradient(
    const UnpaddedStack& s, const SavedSublayer<T>& saved, const Norm& norm, int64_t row, int64_t count, float* d_input,
    T* d, float* sums
) {
    const int64_t size = s.d_model;
    for (int64_t i = row; i < row + count; i++) {
        float* d_row = d_input + (i - row) * size;
        if (s.pre_norm) {
            float* chunk = sums + i / CHUNK * 2 * size;
            normalize_backward(norm, saved.input + i * size, saved.statistics[i], size, d_row, chunk);
        }
        for (int64_t j = 0; j < size; j += LANES) write(d + i * size + j, read(d + i * size + j) + load(d_row + j));
    }
}

// Gradients of the weight and the optional bias of a projection, from d_y in column blocks and x in panels.
template <class T>
auto gradients_of(
    const Linear& linear, const Unit<T>* d_y, int64_t outputs, const Unit<T>* x, int64_t inputs, int64_t rows
) {
    auto put_sums = [&linear](int64_t output, const float* sums) {
        if (linear.bias.gradient) put(sums, COLUMN_BLOCK, static_cast<T*>(linear.bias.gradient) + output);
    };
    auto put_products = [&linear, inputs](int64_t output, int64_t column, const float* sums) {
        put(sums, PANEL, static_cast<T*>(linear.weight.gradient) + output * inputs + column);
    };
    return weight_gradient_product(d_y, outputs, x, inputs, steps_of<T>(rows), put_products, put_sums);
}

// One row of a panel, from `column` on; a unit of bfloat16 has two rows.
Floats row_of(const float* panel, int64_t column, int64_t) { return load(panel + column); }
Floats row_of(const Pair* panel, int64_t column, int64_t row) {
    return half_of(*reinterpret_cast<const Ints*>(panel + column), row % 2);
}
#if HAS_AMX
Floats row_of(const Split* panel, int64_t column, int64_t row) { return joined(panel, column, row % 2); }
#endif

// Destinations of the gradients of hidden values, rows of a block and column blocks of all rows, and of activations.
template <class T>
struct HiddenGradients {
    T* rows;
    Panels<T> column_blocks, activations;  // activations: null if the forward pass has saved them
};

// Gradients of the activation's input for `count` rows from `row` on, from those of a panel of activations from
// `column` on; recomputes the activations.
template <class T>
void put_hidden_gradient(
    const UnpaddedStack& s, const SavedSublayer<T>& saved, int64_t row, int64_t count, int64_t column,
    const float* gradients, const HiddenGradients<T>& to
) {
    struct Vectors { Floats d_hidden, d_other, activated; };
    const int64_t steps = steps_of<T>(saved.rows), other = s.d_ff * steps, in_block = column % COLUMN_BLOCK;
    const int64_t step = row / PackedStep<T>::ENTRIES, stride = s.hidden_width();
    const bool gated = s.gated();
    int64_t at = column * steps + step * PANEL;  // index of the current step in panels
    Unit<T>* d_hidden = to.column_blocks + (column - in_block) * steps + step * COLUMN_BLOCK;
    with_activation(s.activation_kind(), [&](auto activation) {
        auto put = [&](int64_t i, int64_t j) {
            const Floats gradient = load(gradients + i * PANEL + j), value = row_of(saved.hidden + at, j, i);
            T* d_row = to.rows + i * stride + column + j;
            const Floats factor = gated ? row_of(saved.hidden + other + at, j, i) : broadcast(1.0f);
            const ActivationGradient result = activation_gradient(activation, value, gradient * factor);
            const Vectors v = {result.gradient, gradient * result.activated, result.activated * factor};
            if (gated) write(d_row + s.d_ff, v.d_other);
            write(d_row, v.d_hidden);
            return v;
        };
        for (int64_t i = 0; i < count; i += PackedStep<T>::ENTRIES) {
            const int64_t next = at + steps * PANEL;
            fetch_line(to.rows + i * stride + column + PANEL), fetch_line(saved.hidden + next);
            if (gated)
                fetch_line(to.rows + i * stride + s.d_ff + column + PANEL), fetch_line(saved.hidden + other + next);
            if (to.activations) fetch_line(to.activations + next);
            for (int64_t j = 0; j < PANEL; j += LANES) {
                const Vectors upper = put(i, j), lower = has_next<T>(i, count) ? put(i + 1, j) : Vectors{};
                put_units(upper.d_hidden, lower.d_hidden, d_hidden, in_block + j);
                if (gated) put_units(upper.d_other, lower.d_other, d_hidden + other, in_block + j);
                if (to.activations) put_units(upper.activated, lower.activated, to.activations + at, j);
            }
            at += PANEL, d_hidden += COLUMN_BLOCK;
        }
    });
}

// Packing of a weight for the product of gradients with it, from the step `first` of `steps` on.
template <class T>
auto packing_weight_rows(const Linear& linear, int64_t first, int64_t steps, Unit<T>* to) {
    return packing_rows(values_of<T>(linear.weight), linear.outputs, linear.inputs, first, steps, to);
}

template <class T>
void feed_forward_backward(const UnpaddedStack& s, const Layer& layer, const SavedSublayer<T>& saved, T* d) {
    const int64_t size = s.d_model, wide = s.d_ff, all = s.hidden_width(), gate_width = all - wide;
    const int64_t rows = saved.rows, steps = steps_of<T>(rows), inner_steps = steps_of<T>(all);
    const Norm& norm = layer.feed_forward_norm;
    auto inner = workspace<Unit<T>>(WEIGHTS, size * inner_steps),
         outer = workspace<Unit<T>>(OUTER_WEIGHTS, wide * steps_of<T>(size));
    auto sums = sums_of_chunks(rows, size);
    auto d_y = workspace<Unit<T>>(D_RESULT, steps * size), d_hidden = workspace<Unit<T>>(D_INNER, steps * all);
    const bool saved_activations = s.activation_kind() == RELU && !s.gated();
    auto activations = saved_activations ? saved.hidden : workspace<Unit<T>>(ACTIVATED, steps * wide);
    parallel(
        s.threads, packing_weight_rows<T>(layer.outer, 0, steps_of<T>(size), outer),
        packing_weight_rows<T>(layer.gate, 0, inner_steps, inner),
        packing_weight_rows<T>(layer.inner, steps_of<T>(gate_width), inner_steps, inner)
    );
    auto backward = [&](int64_t row, int64_t count) {
        const T* d_output = add_norm_backward(s, saved, norm, row, count, d, d_y, sums);
        const HiddenGradients<T> to = {
            workspace<T>(BLOCK_HIDDEN, BLOCK * all), d_hidden, saved_activations ? nullptr : activations
        };
        auto put_gradient = [&](int64_t column, const float* gradients) {
            put_hidden_gradient(s, saved, row, count, column, gradients, to);
        };
        multiply_block(rows_at(d_output, size), count, outer, wide, steps_of<T>(size), put_gradient);
        auto d_input = workspace<float>(BLOCK_RESULT, BLOCK * size);
        multiply_to<T>(to.rows, all, count, inner, size, all, nullptr, d_input);
        add_sublayer_gradient(s, saved, norm, row, count, d_input, d, sums);
    };
    parallel(s.threads, blocks(rows, backward));
    parallel(
        s.threads, gradients_of<T>(layer.outer, d_y, size, activations, wide, rows),
        gradients_of<T>(layer.gate, d_hidden, gate_width, saved.packed_input, size, rows),
        gradients_of<T>(layer.inner, d_hidden + gate_width * steps, wide, saved.packed_input, size, rows),
        norm_gradient<T>(norm, sums, rows, size)
    );
}

// Add gradients of the selected rows to zeros. Threads divide the columns: a token may be selected more than once.
template <class T>
void scatter_rows(const UnpaddedStack& s, const T* from, int64_t width, T* to) {
    parallel_for(s.threads, width, COLUMN_BLOCK, [&](int64_t first, int64_t end) {
        for (int64_t row = 0; row < s.rows; row++) std::fill(to + row * width + first, to + row * width + end, T{});
        for (int64_t i = 0; i < s.selected_count; i++) {
            if (s.selected_rows[i] < 0) continue;
            const T* gradient = from + i * width;
            T* row = to + s.selected_rows[i] * width;
            for (int64_t j = first; j < end; j += LANES) write(row + j, read(row + j) + read(gradient + j));
        }
    });
}

// Gradient of the context of attention, the input of W_O.
template <class T>
void context_gradient(
    const UnpaddedStack& s, const AttentionParameters& p, const SavedSublayer<T>& saved, T* d, Unit<T>* d_y,
    T* d_context, float* sums
) {
    const int64_t size = s.d_model, steps = steps_of<T>(size), wide = p.context;
    auto back = workspace<Unit<T>>(OUTER_WEIGHTS, wide * steps);
    parallel(s.threads, packing_weight_rows<T>(p.output, 0, steps, back));
    auto backward = [&](int64_t row, int64_t count) {
        const T* d_output = add_norm_backward(s, saved, p.norm, row, count, d, d_y, sums);
        multiply_block(rows_at(d_output, size), count, back, wide, steps, [&](int64_t column, const float* sums) {
            put_panel<T>(sums, count, nullptr, d_context + row * wide + column, wide);
        });
    };
    parallel(s.threads, blocks(saved.results, backward));
}

// Gradients of queries, keys and values, as rows and in column blocks; in self-attention one row contains all three.
template <class T>
struct AttentionGradients {
    T *queries, *keys;
    Panels<T> query_panels, key_panels;
};

// Gradients of the inputs of queries, keys and values: one product with all three weights, or in cross-attention one
// for each input.
template <class T>
void projected_gradient(
    const UnpaddedStack& s, const AttentionParameters& p, const SavedSublayer<T>& saved, const AttentionGradients<T>& g,
    T* d, float* d_memory, float* sums
) {
    const int64_t size = s.d_model, all = steps_of<T>(p.query_width), key_steps = steps_of<T>(p.key_width);
    auto queries = workspace<Unit<T>>(WEIGHTS, size * (all + key_steps));
    auto keys = p.self ? queries : queries + size * all;
    parallel(
        s.threads, packing_weight_rows<T>(p.query, 0, all, queries),
        packing_weight_rows<T>(p.key, steps_of<T>(p.first_key()), key_steps, keys),
        packing_weight_rows<T>(p.value, steps_of<T>(p.first_key() + p.keys), key_steps, keys)
    );
    auto back = [&](const T* from, int64_t width, int64_t row, int64_t count, int64_t rows, const Unit<T>* weights,
                    Unit<T>* panels) {
        auto d_input = workspace<float>(BLOCK_RESULT, BLOCK * size);
        pack_panels<COLUMN_BLOCK>(
            from + row * width, width, count, width, row / PackedStep<T>::ENTRIES, steps_of<T>(rows), panels
        );
        multiply_to<T>(from + row * width, width, count, weights, size, width, nullptr, d_input);
        return d_input;
    };
    auto backward = [&](int64_t row, int64_t count) {
        float* d_input = back(g.queries, p.query_width, row, count, p.rows, queries, g.query_panels);
        add_sublayer_gradient(s, saved, p.norm, row, count, d_input, d, sums);
    };
    auto memory_backward = [&](int64_t row, int64_t count) {
        const float* d_input = back(g.keys, p.key_width, row, count, p.memory, keys, g.key_panels);
        float* to = d_memory + row * size;
        for (int64_t i = 0; i < count * size; i += LANES) store(to + i, load(to + i) + load(d_input + i));
    };
    parallel(s.threads, blocks(p.rows, backward), blocks(p.memory, memory_backward));
}

template <class T>
void attention_backward(
    const UnpaddedStack& s, const Layer& layer, const SavedSublayer<T>& saved, bool self, T* d, const Unit<T>* memory,
    float* d_memory
) {
    const AttentionParameters p(s, layer, self);
    const int64_t size = s.d_model, steps = steps_of<T>(p.rows), key_rows = self ? p.rows : p.memory;
    const int64_t key_steps = steps_of<T>(key_rows), most_rows = std::max(saved.rows, saved.results);
    auto sums = sums_of_chunks(most_rows, size);
    auto d_y = workspace<Unit<T>>(D_RESULT, steps_of<T>(saved.results) * size);
    auto d_context = workspace<T>(D_CONTEXT, p.rows * p.context);
    AttentionGradients<T> g = {workspace<T>(D_QUERIES, p.rows * p.query_width)};
    g.query_panels = workspace<Unit<T>>(D_QUERY_PANELS, steps * p.query_width);
    g.keys = self ? g.queries + p.queries : workspace<T>(D_KEYS, p.memory * p.key_width);
    g.key_panels =
        self ? g.query_panels + p.queries * steps : workspace<Unit<T>>(D_KEY_PANELS, key_steps * p.key_width);
    if (saved.selects) {
        auto needed = workspace<T>(SELECTED_CONTEXT, saved.results * p.context);
        auto d_selected = workspace<T>(SELECTED, saved.results * size);
        context_gradient(s, p, saved, d, d_y, needed, sums);
        std::copy(d, d + saved.results * size, d_selected);
        scatter_rows(s, needed, p.context, d_context), scatter_rows(s, d_selected, size, d);
    } else {
        context_gradient(s, p, saved, d, d_y, d_context, sums);
    }
    attention_of<T>(s, p, saved, true, nullptr, g.queries, g.keys, d_context);
    if (self) rotate_heads(s, p, g.queries, s.inverse_sines);
    projected_gradient<T>(s, p, saved, g, d, d_memory, sums);
    const Unit<T>* key_input = self ? saved.packed_input : memory;
    parallel(
        s.threads, gradients_of<T>(p.output, d_y, size, saved.context, p.context, saved.results),
        gradients_of<T>(p.query, g.query_panels, p.queries, saved.packed_input, size, p.rows),
        gradients_of<T>(p.key, g.key_panels, p.keys, key_input, size, key_rows),
        gradients_of<T>(p.value, g.key_panels + p.keys * key_steps, p.values, key_input, size, key_rows),
        norm_gradient<T>(p.norm, sums, most_rows, size)
    );
}

// Gradient of the last layer's results, in place in `d`, from that of their norm.
template <class T>
void final_norm_backward(const UnpaddedStack& s, const SavedStack<T>& saved, T* d) {
    const Norm& norm = s.final_norm;
    if (!norm.weight.value) return;
    const int64_t size = s.d_model;
    auto sums = sums_of_chunks(s.last_rows, size);
    parallel_for(s.threads, s.last_rows, CHUNK, [&](int64_t first, int64_t end) {
        auto d_row = workspace<float>(ROW, size);
        for (int64_t i = first; i < end; i++)
            norm_backward_in_place(
                norm, saved.result + i * size, saved.final_statistics[i], size, d + i * size, d_row,
                sums + i / CHUNK * 2 * size
            );
    });
    parallel(s.threads, norm_gradient<T>(norm, sums, s.last_rows, size));
}

// Add padded gradients of all rows to those in `d`.
template <class T>
void add_padded(const UnpaddedStack& s, const void* gradients, T* d) {
    parallel_for(s.threads, s.batch, 1, [&](int64_t b, int64_t) {
        const T* from = static_cast<const T*>(gradients) + b * s.length * s.d_model;
        T* to = d + s.cu_seqlens[b] * s.d_model;
        const int64_t used = (s.cu_seqlens[b + 1] - s.cu_seqlens[b]) * s.d_model;
        for (int64_t i = 0; i < used; i += LANES) write(to + i, read(to + i) + read(from + i));
    });
}

}  // namespace

template <class T>
void stack_backward(const UnpaddedStack& s) {
    const SavedStack<T> saved_stack(s);
    auto d = workspace<T>(D_STREAM, std::max(s.rows, s.last_rows) * s.d_model);
    auto d_result = static_cast<const T*>(s.d_result);
    if (!s.selected) unpad<T>(s, s.cu_seqlens, d_result, s.length, d);
    else if (s.selects || s.every_row) put_selected(s, d_result, d);
    else scatter_rows(s, d_result, s.d_model, d);
    final_norm_backward(s, saved_stack, d);
    auto d_memory = workspace<float>(D_MEMORY, s.memory_rows * s.d_model);
    std::fill(d_memory, d_memory + s.memory_rows * s.d_model, 0.0f);
    for (int64_t layer = s.n_layers; layer-- > 0;) {
        feed_forward_backward(s, s.layers[layer], saved_stack.feed_forward[layer], d);
        if (s.memory_length) {
            attention_backward(s, s.layers[layer], saved_stack.cross[layer], false, d, saved_stack.memory, d_memory);
            if (s.d_cross_input && layer == s.cross_layer) add_padded(s, s.d_cross_input, d);
        }
        attention_backward(s, s.layers[layer], saved_stack.self[layer], true, d, saved_stack.memory, d_memory);
    }
    if (s.float_x) pad<float>(s, s.cu_seqlens, d, s.length, s.d_x);
    else pad<T>(s, s.cu_seqlens, d, s.length, s.d_x);
    if (s.memory_length) pad<T>(s, s.memory_cu_seqlens, d_memory, s.memory_length, s.d_memory);
}

template void stack_backward<float>(const UnpaddedStack&);
#if HAS_BFLOAT16
template void stack_backward<uint16_t>(const UnpaddedStack&);
#endif
