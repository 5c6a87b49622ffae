// Output projection, softmax over the vocabulary, label-smoothed cross-entropy and all gradients (section 5.4). A few
// rows of logits are computed at a time: with vocabularies of several thousand entries they stay in the L2 cache.
//
// With ε of the probability spread evenly over V entries, the gradient of a logit is p − (1 − ε) · [target] − ε / V.
#include "api.h"
#include "softmax.h"
#include "split_products.h"

#define PIECE_UNIT (CHUNK / 4)  // rows: pieces have a multiple of it, on which the bits of d_weight depend
#define PIECE_BYTES (64 << 20)  // of hidden states and gradients of logits; each piece adds to all of d_weight
#if HAS_AMX
#define LOGIT_ROWS (4 * AMX_SIDE)  // fewer rows wait for the weights, which come from the L3 cache
#else
#define LOGIT_ROWS CHUNK
#endif

struct RowLoss { double nll, smooth; };

// Loss of one row of logits, and its gradient, 0 beyond the vocabulary. Rows have full column blocks.
template <class T>
static RowLoss loss_of_row(const ProjectedLoss& l, float* logits, int64_t target, int64_t padded_size, T* gradient) {
    const int64_t size = l.vocab_size;
    const float target_logit = logits[target];
    Floats largest[4], totals = {};  // of one vector each maximum would wait for its predecessor
    std::fill(largest, largest + 4, broadcast(-INFINITY));
    std::fill(logits + size, logits + padded_size, -INFINITY);
    for (int64_t i = 0; i < padded_size; i += 4 * LANES)
        UNROLL_FOR (int j = 0; j < 4; j++) {
            const Floats values = load(logits + i + j * LANES);
            largest[j] = greater(largest[j], values);
            totals += values == broadcast(-INFINITY) ? Floats{} : values;
        }
    const float shift = maximum(greater(greater(largest[0], largest[1]), greater(largest[2], largest[3])));
    const float denominator = exponentiate<T>(logits, 0, padded_size, shift);
    const float inverse = 1.0f / denominator, uniform = l.smoothing / size;
    const double log_sum = shift + std::log(static_cast<double>(denominator));
    logits[target] -= (1 - l.smoothing) * denominator;
    if (gradient) {
        for (int64_t i = 0; i < padded_size; i += LANES) write(gradient + i, load(logits + i) * inverse - uniform);
        std::fill(gradient + size, gradient + padded_size, T{});
    }
    return {log_sum - target_logit, log_sum - static_cast<double>(sum(totals)) / size};
}

// True if the weights need no copy: they have the type of `hidden` and full column blocks.
template <class T>
static bool usable_weights(const ProjectedLoss& l) {
    return std::is_same<T, float>::value && l.vocab_size % COLUMN_BLOCK == 0;
}

template <class T>
static T* weights_as(const ProjectedLoss& l, int64_t padded_size) {
    if (usable_weights<T>(l)) return reinterpret_cast<T*>(const_cast<float*>(l.weight));
    return workspace<T>(ROUNDED_WEIGHTS, padded_size * l.d_model);
}

template <class T>
static auto rounding_weights(const ProjectedLoss& l, int64_t padded_size, T* to) {
    if (usable_weights<T>(l)) padded_size = 0;
    return loop(padded_size * l.d_model, COLUMN_BLOCK * l.d_model, [&l, to](int64_t from, int64_t end) {
        const int64_t count = l.vocab_size * l.d_model;
        for (int64_t i = from; i < end; i += LANES) write(to + i, i < count ? load(l.weight + i) : Floats{});
    });
}

// Buffers that all threads share.
template <class T>
struct LossWorkspace {
    int64_t size, steps, size_steps;  // width of a row of logits; steps of a sum over d_model, and over that width
    T* weights;                       // in the type of `hidden`
    Panels<T> outputs, inputs;        // the same, packed for either product
    Panels<T> hidden, gradients;      // of a piece, in panels and in column blocks, for d_weight
    int64_t piece_steps;              // steps of the sum over the rows of a piece
};

// Loss of `count` rows, and the gradient of their hidden states. The gradient of the logits overwrites the logits.
template <class T>
static void loss_of_rows(
    const ProjectedLoss& l, const LossWorkspace<T>& r, int64_t start, int64_t row, int64_t count, RowLoss* losses
) {
    const int64_t d = l.d_model, first = start + row, stride = r.size * sizeof(float) / sizeof(T);
    auto logits = workspace<float>(LOGITS, LOGIT_ROWS * r.size);
    auto gradients = reinterpret_cast<T*>(logits);
    auto put_logits = [&](int64_t column, const float* sums) {
        put_panel<float>(sums, count, nullptr, logits + column, r.size);
    };
    multiply_block(
        rows_at(static_cast<const T*>(l.hidden) + first * d, d), count, r.outputs, r.size, r.steps, put_logits
    );
    for (int64_t i = 0; i < count; i++) {
        float* row_logits = logits + i * r.size;
        for (int64_t j = 0; l.bias && j < l.vocab_size; j++) row_logits[j] += l.bias[j];
        losses[first + i] =
            loss_of_row(l, row_logits, l.target[first + i], r.size, l.d_hidden ? gradients + i * stride : nullptr);
    }
    if (!l.d_hidden) return;
    pack_panels<COLUMN_BLOCK>(
        gradients, stride, count, r.size, row / PackedStep<T>::ENTRIES, r.piece_steps, r.gradients
    );
    auto put_gradients = [&](int64_t column, const float* sums) {
        put_panel<T>(sums, count, nullptr, static_cast<T*>(l.d_hidden) + first * d + column, d);
    };
    multiply_block(rows_at(gradients, stride), count, r.inputs, d, r.size_steps, put_gradients);
}

#if HAS_AMX
// Rows of steps: the transpose of panels.
static OperandOf<Pair> rows_of_panels(const Pair* panels, int64_t columns, int64_t steps, int64_t threads) {
    const int64_t across = spread_stride(steps);
    auto rows = workspace<Pair>(TRANSPOSED, columns * across);
    parallel_for(threads, columns, PANEL, [&](int64_t first, int64_t) {
        transpose(panels + first * steps, PANEL, PANEL, steps, rows + first * across, across);
    });
    return {rows, across, 1};
}

static TileRows<Split> rows_of_panels(const Split* panels, int64_t columns, int64_t steps, int64_t threads) {
    const int64_t across = spread_stride(steps), next_part = columns * across;
    auto rows = workspace<Pair>(TRANSPOSED, PARTS * next_part);
    parallel_for(threads, columns, PANEL, [&](int64_t first, int64_t) {
        transpose_parts(panels + first * steps, 0, steps, rows + first * across, across, next_part);
    });
    return {rows, across, next_part};
}

// Put sums [PANEL, COLUMN_BLOCK] of an exchanged product, from the output `first` and the column `row` on.
template <class Put>
static void put_exchanged(const float* sums, int64_t first, int64_t row, Put put) {
    float squares[COLUMN_BLOCK * PANEL];
    for (int64_t i = 0; i < PANEL; i += LANES)
        for (int64_t j = 0; j < COLUMN_BLOCK; j += LANES)
            transpose_square(sums + i * COLUMN_BLOCK + j, COLUMN_BLOCK, squares + j * PANEL + i, PANEL);
    for (int64_t j = 0; j < COLUMN_BLOCK; j++) put(first + j, row, squares + j * PANEL);
}

// The product of add_weight_gradient with exchanged operands: the gradients' column blocks are the panels. So the sums
// are transposed, and not the gradients, which are eight times as many. In bfloat16
// products and their order are the same; in float32 the products of the parts have another order.
template <class Put, class PutSums>
static void exchanged_product(const ProjectedLoss& l, const LossWorkspace<uint16_t>& r, Put put, PutSums put_sums) {
    const int64_t steps = r.piece_steps;
    const auto rows = rows_of_panels(r.hidden, l.d_model, steps, l.threads);
    parallel_for(l.threads, r.size, COLUMN_BLOCK, [&](int64_t first, int64_t) {
        const Pair* block = r.gradients + first * steps;
        for (int64_t row = 0; row < l.d_model; row += PANEL) {
            const OperandOf<Pair> operand = {rows.data + row * rows.across, rows.across, 1};
            multiply_block(operand, PANEL, block, COLUMN_BLOCK, steps, [&](int64_t, const float* sums) {
                put_exchanged(sums, first, row, put);
            });
        }
        float totals[COLUMN_BLOCK];
        sum_columns(block, steps, totals);
        put_sums(first, totals);
    });
}

template <class Put, class PutSums>
static void exchanged_product(const ProjectedLoss& l, const LossWorkspace<float>& r, Put put, PutSums put_sums) {
    const int64_t steps = r.piece_steps, d = l.d_model;
    const auto rows = rows_of_panels(r.hidden, d, steps, l.threads);
    parallel_for(l.threads, r.size, GRADIENT_ROWS, [&](int64_t from, int64_t end) {
        auto sums = workspace<float>(PARTIAL_SUMS, d * GRADIENT_ROWS);
        float totals[GRADIENT_ROWS] = {};
        for (int64_t step = 0; step < steps; step += GRADIENT_STEPS) {
            const int64_t count = std::min<int64_t>(GRADIENT_STEPS, steps - step);
            configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
            for (int64_t first = from; first < end; first += COLUMN_BLOCK) {
                const Split* block = r.gradients + first * steps + step * COLUMN_BLOCK;
                amx_panel<Split>(rows.at(0, step), d, block, count, sums + (first - from) * d, !step);
                add_column_sums(block, count, totals + first - from);
            }
            _tile_release();
        }
        for (int64_t first = from; first < end; first += COLUMN_BLOCK) {
            for (int64_t row = 0; row < d; row += PANEL)
                put_exchanged(sums + (first - from) * d + row * PANEL, first, row, put);
            put_sums(first, totals + first - from);
        }
    });
}
#endif

// Add the gradients of a piece to d_weight and d_bias; the first piece overwrites them.
template <class T>
static void add_weight_gradient(const ProjectedLoss& l, const LossWorkspace<T>& r, int64_t start) {
    auto add_sums = [&](const float* sums, int64_t count, float* to) {
        for (int64_t j = 0; j < count; j++) to[j] = start ? to[j] + sums[j] : sums[j];
    };
    auto add = [&](int64_t output, int64_t column, const float* sums) {
        if (output < l.vocab_size) add_sums(sums, PANEL, l.d_weight + output * l.d_model + column);
    };
    auto add_bias = [&](int64_t output, const float* sums) {
        if (l.d_bias) add_sums(sums, std::min<int64_t>(COLUMN_BLOCK, l.vocab_size - output), l.d_bias + output);
    };
#if HAS_AMX
    exchanged_product(l, r, add, add_bias);
#else
    parallel(
        l.threads, weight_gradient_product(r.gradients, r.size, r.hidden, l.d_model, r.piece_steps, add, add_bias)
    );
#endif
}

template <class T>
static void projected_loss(ProjectedLoss& l) {
    check_indices(l.target, l.tokens, l.vocab_size, OUTSIDE_VOCABULARY);
    const int64_t d = l.d_model, size = padded(l.vocab_size, COLUMN_BLOCK);
    const int64_t max_piece =
        std::max<int64_t>(LOGIT_ROWS, PIECE_BYTES * PackedStep<T>::ENTRIES / ((size + d) * sizeof(Unit<T>)));
    const int64_t pieces = std::max<int64_t>(1, ceil_div(l.tokens, max_piece));
    const int64_t piece = padded(ceil_div(l.tokens, pieces), PIECE_UNIT);
    LossWorkspace<T> shared = {size, steps_of<T>(d), steps_of<T>(size), weights_as<T>(l, size)};
    shared.outputs = workspace<Unit<T>>(WEIGHTS, size * shared.steps);
    if (l.d_hidden) {
        shared.inputs = workspace<Unit<T>>(OUTER_WEIGHTS, shared.size_steps * d);
        shared.hidden = workspace<Unit<T>>(PACKED_INPUT, steps_of<T>(piece) * d);
        shared.gradients = workspace<Unit<T>>(D_LOGITS, steps_of<T>(piece) * size);
    }
    std::vector<RowLoss> losses(l.tokens);
    const int64_t backward = l.d_hidden ? 1 : 0;
    parallel(l.threads, rounding_weights(l, size, shared.weights));
    parallel(
        l.threads, packing_for_outputs(shared.weights, size, d, shared.outputs),
        packing_rows(shared.weights, backward * size, d, 0, shared.size_steps, shared.inputs)
    );
    for (int64_t start = 0; start < l.tokens; start += piece) {
        const int64_t rows = std::min(piece, l.tokens - start);
        LossWorkspace<T> r = shared;
        r.piece_steps = steps_of<T>(rows);
        const T* hidden = static_cast<const T*>(l.hidden) + start * d;
        parallel(
            l.threads, packing_rows(hidden, backward * rows, d, 0, r.piece_steps, r.hidden),
            loop(rows, LOGIT_ROWS, [&](int64_t row, int64_t end) {
                loss_of_rows(l, r, start, row, end - row, losses.data());
            })
        );
        if (backward) add_weight_gradient(l, r, start);
    }
    l.nll = l.smooth = 0;
    for (const RowLoss& row_loss : losses) l.nll += row_loss.nll, l.smooth += row_loss.smooth;
}

API int32_t projected_cross_entropy(ProjectedLoss* loss) {
    return guarded([&] {
#if HAS_BFLOAT16
        if (loss->bfloat16) return projected_loss<uint16_t>(*loss);
#endif
        projected_loss<float>(*loss);
    });
}
