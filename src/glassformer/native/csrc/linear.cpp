// y = x Wᵀ + b in inference, from packed weights, in float32, in parts (split.h), or with x and W in int8.
#include "api.h"
#include "linear.h"
#include "split_products.h"

#define ENOUGH_WEIGHTS (1 << 17)   // from which on several cores read them faster
#define ENOUGH_PRODUCTS (1 << 22)  // likewise, for the arithmetic
#if HAS_AMX
#define ROWS_OF_LINEAR (4 * CHUNK)  // their sums fit the L1 cache
#else
#define ROWS_OF_LINEAR FULL_TILE_ROWS
#endif
#define ROWS_FOR_EACH 64                   // of weights in parts: a thread that multiplies fewer reads all of them
#define ROWS_AT_ONCE (2 * ROWS_OF_LINEAR)  // rows of x that fit the L2 cache while all of W is read
#define FEW_ROWS 16                        // their products take microseconds

// Rows of x, or their int8 form: value ≈ scale · number. `sums` are the sums of the numbers of each row.
struct Input {
    Operand values;            // [rows, inputs]
    OperandOf<Group> numbers;  // [padded rows, steps]
    const float* scales;       // [rows]
    const int32_t* sums;       // [rows]
};

static void quantize(const float* x, int64_t count, Quantized* numbers, float* scale, int32_t* total) {
    typedef Quantized QuantizedLanes __attribute__((vector_size(LANES * sizeof(Quantized)), aligned(1), may_alias));
    Floats largest = {}, non_finite = {};  // 0 · x is NaN if x is not finite; then the row is NaN
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        Floats values = load(x + i);
        largest = greater(largest, greater(values, -values));
        non_finite += values * 0.0f;
    }
    float limit = maximum(largest), invalid = sum(non_finite);
    for (; i < count; i++) limit = std::fmax(limit, std::fabs(x[i])), invalid += x[i] * 0.0f;
    if (invalid != 0) {
        std::fill(numbers, numbers + padded(count, Step<Quantized>::ENTRIES), Quantized{});
        *scale = NAN, *total = 0;
        return;
    }
    float inverse = limit > 1e-36f ? 127.0f / limit : 0.0f;  // a smaller limit would give infinity
    const float rounder = 12582912.0f;
    Ints sums = {};
    for (i = 0; i + LANES <= count; i += LANES) {
        Floats rounded = (load(x + i) * inverse + rounder) - rounder;
        Ints integers = __builtin_convertvector(rounded, Ints);
        sums += integers;
        *reinterpret_cast<QuantizedLanes*>(numbers + i) = __builtin_convertvector(integers, QuantizedLanes);
    }
    int32_t result = 0;
    for (int lane = 0; lane < LANES; lane++) result += sums[lane];
    for (; i < count; i++) {
        numbers[i] = static_cast<Quantized>((x[i] * inverse + rounder) - rounder);
        result += numbers[i];
    }
    std::fill(numbers + count, numbers + padded(count, Step<Quantized>::ENTRIES), Quantized{});
    *scale = limit / 127.0f;
    *total = result;
}

// Finish a panel of outputs from `column` on, row by row, for `rows` rows from `first` on: add the bias, apply the
// activation, and store or add them. result(row, vector) is the product.
template <class Result>
static void finish_panel(
    const Linear& linear, int64_t first, int64_t rows, int64_t column, const Output& out, Result result
) {
    const int64_t count = std::min<int64_t>(PANEL, linear.outputs - column);
    Floats bias[WIDE] = {};
    if (linear.bias.value) memcpy(bias, values_of<float>(linear.bias) + column, count * sizeof(float));
    float* to = out.values + first * out.stride + column;
    for (int64_t row = 0; row < rows; row++, to += out.stride)
        UNROLL_FOR (int j = 0; j < WIDE; j++)
            if (j * LANES < count) {
                const int64_t lanes = count - j * LANES;
                const Floats y = activated(out.activation, result(row, j) + bias[j]);
                write_partial(to + j * LANES, lanes, out.add ? read_partial(to + j * LANES, lanes) + y : y);
            }
}

// Add the bias to a vector of outputs, and store or add it. `least` is 0 for ReLU, -∞ without an activation.
static inline void finish_vector(Floats values, Floats bias, Floats least, bool add, float* to) {
    values += bias;
    values = values < least ? least : values;
    store(to, add ? load(to) + values : values);
}

// Replace rows of a full panel by their activations.
static void activate_rows(Activation activation, int64_t rows, int64_t stride, float* to) {
    with_activation(activation, [=](auto kind) {
        for (int64_t row = 0; row < rows; row++)
            for (int64_t j = row * stride; j < row * stride + PANEL; j += LANES)
                store(to + j, activated(kind, load(to + j)));
    });
}

// Outputs of ROWS rows and a full panel in float32, from `sums` over earlier steps if there are any. They are finished
// in registers, as in products.cpp; only activations other than ReLU read them again.
template <int ROWS>
NOINLINE void finish_tile(
    const Operand& a, const float* panel, int64_t depth, Ahead<float> ahead, const float* sums, const float* bias,
    const Output& out, float* to
) {
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < WIDE; j++) __builtin_prefetch(to + row * out.stride + j * LANES, 1);
    Floats totals[ROWS][WIDE];
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < WIDE; j++) totals[row][j] = sums ? load(sums + row * PANEL + j * LANES) : Floats{};
    add_products<ROWS>(a, panel, depth, ahead, 0, totals);
    const Floats least = broadcast(out.activation == RELU ? 0.0f : -INFINITY);
    UNROLL_FOR (int j = 0; j < WIDE; j++) {
        const Floats shift = bias ? load(bias + j * LANES) : Floats{};
        UNROLL_FOR (int row = 0; row < ROWS; row++)
            finish_vector(totals[row][j], shift, least, out.add, to + row * out.stride + j * LANES);
    }
    if (out.activation > RELU) activate_rows(out.activation, ROWS, out.stride, to);
}

// Outputs of a full panel from `column` on, in float32, for `rows` rows from `first` on.
static void multiply_full_panel(
    const Linear& linear, const Operand& x, int64_t first, int64_t rows, int64_t column, const Output& out
) {
    float sums[MAX_ROWS * PANEL];
    const float* bias = linear.bias.value ? values_of<float>(linear.bias) + column : nullptr;
    const float* weights = values_of<float>(linear.weight) + column * linear.inputs;
    int64_t r = 0;
    do {
        const float* panel = weights + r * PANEL;
        const int64_t count = std::min<int64_t>(DEPTH_AT_ONCE, linear.inputs - r);
        for_each_tile(rows, [&](auto height, int64_t row) {
            constexpr int tile = decltype(height)::value;
            const Operand a = {x.data + (first + row) * x.across + r, x.across, 1};
            const auto ahead = steps_to_fetch(panel, count, row, rows);
            float *before = sums + row * PANEL, *to = out.values + (first + row) * out.stride + column;
            if (r + count == linear.inputs)
                finish_tile<tile>(a, panel, count, ahead, r ? before : nullptr, bias, out, to);
            else if (r) add_block<tile>(a, panel, count, before, ahead);
            else add_block<tile, true>(a, panel, count, before, ahead);
        });
        r += count;
    } while (r < linear.inputs);
}

// Outputs from `from` to `to`, in full panels, of `rows` rows from `first` on.
static void multiply_panels(
    const Linear& linear, const Input& x, int64_t first, int64_t rows, int64_t from, int64_t to, const Output& out
) {
    const auto finish = [&](int64_t column, const float* sums) {
        finish_panel(linear, first, rows, from + column, out, [&](int64_t row, int j) {
            return load(sums + row * PANEL + j * LANES);
        });
    };
#if HAS_AMX
    if (linear.parts) {
        const int64_t steps = steps_of<float>(linear.inputs);
        auto weights = values_of<Split>(linear.weight) + from * steps;
        const Operand operand = {x.values.data + first * x.values.across, x.values.across, 1};
        multiply_split(operand, rows, weights, to - from, linear.inputs, finish);
        return;
    }
#endif
    if (!linear.scales) {
        // finish_tile applies GELU and SiLU to stored outputs, so not to sums that are added to previous values.
        // multiply_block multiplies several panels of one row together.
        const bool in_registers = (rows > 1 || PANELS_OF_A_ROW == 1) && (out.activation <= RELU || !out.add);
        const int64_t full = in_registers ? std::min<int64_t>(to, linear.outputs) / PANEL * PANEL : from;
        for (; from < full; from += PANEL) multiply_full_panel(linear, x.values, first, rows, from, out);
        if (from >= to) return;
        auto weights = values_of<float>(linear.weight) + from * linear.inputs;
        const Operand operand = {x.values.data + first * x.values.across, x.values.across, 1};
        multiply_block(operand, rows, weights, to - from, linear.inputs, finish);
        return;
    }
    const int64_t steps = steps_of<Quantized>(linear.inputs);
    auto weights = values_of<PackedGroup>(linear.weight) + from * steps;
    const OperandOf<Group> operand = {x.numbers.data + first * x.numbers.across, x.numbers.across, 1};
    multiply_block(operand, rows, weights, to - from, steps, [&](int64_t column, const int32_t* sums) {
        finish_panel(linear, first, rows, from + column, out, [&](int64_t row, int j) {
            const Floats scales = load(linear.scales + from + column + j * LANES);
            const Ints exact = load(sums + row * PANEL + j * LANES) - WEIGHT_OFFSET * x.sums[first + row];
            return __builtin_convertvector(exact, Floats) * (scales * x.scales[first + row]);
        });
    });
}

// Outputs from `from` to `to`, in full panels, of rows from `row` to `end`.
static void multiply_range(
    const Linear& linear, const Input& x, int64_t row, int64_t end, int64_t from, int64_t to, const Output& out
) {
#if HAS_AMX
    const int64_t blocks = ceil_div(end - row, MAX_ROWS);
    for (int64_t rest = blocks; linear.parts && row < end; rest--) {
        const int64_t rows = std::min(end - row, padded(ceil_div(end - row, rest), 2 * AMX_SIDE));
        multiply_panels(linear, x, row, rows, from, to, out);
        row += rows;
    }
#endif
    for (int64_t first = row; first < end; first += ROWS_AT_ONCE) {
        const int64_t last = std::min<int64_t>(end, first + ROWS_AT_ONCE);
        const int64_t columns_at_once =
            last - first <= ROWS_OF_LINEAR ? to - from : PANEL;  // whose weights are read once
        for (int64_t column = from; column < to; column += columns_at_once)
            for (int64_t at = first; at < last; at += ROWS_OF_LINEAR)
                multiply_panels(
                    linear, x, at, std::min<int64_t>(ROWS_OF_LINEAR, last - at), column, column + columns_at_once, out
                );
    }
}

#if HAS_AMX
// Bytes are read in full tiles, which must end within the padded rows.
static_assert(FULL_TILE_ROWS % AMX_SIDE == 0, "threads divide rows between tiles");
#endif

// Only the calling thread multiplies small weights: waking others would take longer than the product. Threads divide
// the outputs, or many rows where that leaves a thread idle for a tenth of the time and more.
static void product(const Linear& linear, const Input& x, int64_t rows, const Output& out, int64_t threads) {
    const int64_t weights = static_cast<int64_t>(linear.outputs) * linear.inputs;
    const int64_t panels = ceil_div(linear.outputs, PANEL);
    if (!panels) return;
    if (weights < ENOUGH_WEIGHTS && weights * rows < ENOUGH_PRODUCTS) threads = 1;
    if (rows < FEW_ROWS) threads = threads_for_small_work(threads);
    const int64_t panels_at_once = ceil_div(panels, threads);
    const bool uneven = 10 * panels < 9 * panels_at_once * threads;
    if (linear.parts ? rows >= threads * ROWS_FOR_EACH : rows >= threads * ROWS_AT_ONCE && uneven) {
        const int64_t chunks = padded(ceil_div(rows, ROWS_AT_ONCE), threads);
        parallel_for(threads, rows, padded(ceil_div(rows, chunks), FULL_TILE_ROWS), [&](int64_t row, int64_t end) {
            multiply_range(linear, x, row, end, 0, panels * PANEL, out);
        });
        return;
    }
    parallel_for(threads, linear.outputs, panels_at_once * PANEL, [&](int64_t from, int64_t to) {
        multiply_range(linear, x, 0, rows, from, to, out);
    });
}

// Pack weights [outputs, inputs] into panels of outputs, in int8 with a scale for each output; an output with NaN or
// infinity has the scale NaN.
static void pack_quantized(const float* weights, int64_t outputs, int64_t inputs, uint8_t* packed, float* scales) {
    const int64_t group = Step<Quantized>::ENTRIES, depth = padded(inputs, group);
    for (int64_t output = 0; output < padded(outputs, PANEL); output++) {
        const float* row = output < outputs ? weights + output * inputs : nullptr;
        float limit = 0, invalid = 0;
        for (int64_t i = 0; row && i < inputs; i++)
            limit = std::fmax(limit, std::fabs(row[i])), invalid += row[i] * 0.0f;
        scales[output] = limit / 127.0f + invalid;
        const bool zero = !row || invalid != 0 || limit == 0;
        uint8_t* to = packed + output / PANEL * PANEL * depth + output % PANEL * group;
        for (int64_t i = 0; i < depth; i++) {
            const float value = zero || i >= inputs ? 0.0f : row[i] / limit * 127.0f;
            const auto rounded = static_cast<uint8_t>(WEIGHT_OFFSET + std::lrint(value));
            to[i / group * PANEL * group + i % group] = rounded;
        }
    }
}

void linear(const Linear& weights, const float* x, int64_t rows, Output out, int64_t threads) {
    Input input{{x, weights.inputs, 1}};
    if (weights.scales) {
        const int64_t stride = padded(weights.inputs, Step<Quantized>::ENTRIES);
        auto numbers = workspace<Quantized>(QUANTIZED, padded(rows, 16) * stride);
        auto scales = workspace<float>(QUANTIZED_SCALES, rows);
        auto sums = workspace<int32_t>(QUANTIZED_SUMS, rows);
        for (int64_t row = 0; row < rows; row++)
            quantize(x + row * weights.inputs, weights.inputs, numbers + row * stride, scales + row, sums + row);
        input.numbers = rows_at(numbers, stride);
        input.scales = scales, input.sums = sums;
    }
    product(weights, input, rows, out, threads);
}

// Size of packed weights.
API int64_t packed_bytes(int64_t outputs, int64_t inputs, int32_t int8, int32_t parts) {
    const int64_t columns = padded(outputs, PANEL);
    if (int8) return columns * steps_of<Quantized>(inputs) * static_cast<int64_t>(sizeof(PackedGroup));
    if (!parts) return columns * inputs * static_cast<int64_t>(sizeof(float));
    return columns * steps_of<float>(inputs) * static_cast<int64_t>(sizeof(Unit<float>));
}

// With `parts`, in parts of bfloat16 (split.h), if this variant multiplies them.
API int32_t
pack_weights(const float* weights, int64_t outputs, int64_t inputs, void* packed, float* scales, int32_t parts) {
    return guarded([&] {
        const Operand columns = {weights, inputs, 1};
#if HAS_AMX
        if (parts) return parallel(1, packing_columns(columns, outputs, inputs, static_cast<Split*>(packed)));
#else
        if (parts) throw std::invalid_argument("this variant multiplies no parts");
#endif
        if (scales) pack_quantized(weights, outputs, inputs, static_cast<uint8_t*>(packed), scales);
        else parallel(1, packing_columns(columns, outputs, inputs, static_cast<float*>(packed)));
    });
}

API int32_t apply_linear(const Linear* weights, const float* x, int64_t rows, float* y, int64_t threads) {
    return guarded([&] { linear(*weights, x, rows, {y, weights->outputs, NONE, false}, threads); });
}
