// y = x Wᵀ + b in use, of packed weights, in float32 or with both x and W in eight bits.
#pragma once
#include "activation.h"
#include "gemm.h"
#include "layer.h"

#define ENOUGH_WEIGHTS (1 << 17)  // that reading them by several cores is worth waiting for each other
#define ENOUGH_PRODUCTS (1 << 22)  // likewise, that computing them is
#define ROWS_AT_ONCE (2 * BLOCK)  // of x, which then stay in the second-level cache while all of W passes by
#define FEW_ROWS 16  // whose products take microseconds

struct Output {
    float* values;
    int64_t stride;
    Activation activation;
    bool add;  // to what is there: the residual connection
};

// Rows of x, or the same in eight bits: value ≈ scale · number. `sums` are of the numbers of a row.
struct Input {
    Operand values;
    OperandOf<Group> numbers;
    const float* scales;
    const int32_t* sums;
};

static void quantize(const float* x, int64_t count, Quantized* numbers, float* scale, int32_t* total) {
    typedef Quantized Some __attribute__((vector_size(LANES * sizeof(Quantized)), aligned(1), may_alias));
    Floats largest = {}, faults = {};  // 0 · x is not a number where x is none, and then the whole row is none
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        Floats values = load(x + i);
        largest = greater(largest, greater(values, -values));
        faults += values * 0.0f;
    }
    float limit = maximum(largest), fault = sum(faults);
    for (; i < count; i++) limit = std::fmax(limit, std::fabs(x[i])), fault += x[i] * 0.0f;
    if (fault != 0) {
        std::fill(numbers, numbers + padded(count, Step<Quantized>::ENTRIES), Quantized{});
        *scale = NAN, *total = 0;
        return;
    }
    float inverse = limit > 1e-36f ? 127.0f / limit : 0.0f;  // of less it would be infinite
    const float rounder = 12582912.0f;
    Ints sums = {};
    for (i = 0; i + LANES <= count; i += LANES) {
        Floats rounded = (load(x + i) * inverse + rounder) - rounder;
        Ints whole = __builtin_convertvector(rounded, Ints);
        sums += whole;
        *reinterpret_cast<Some*>(numbers + i) = __builtin_convertvector(whole, Some);
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

// LANES outputs of one row: bias, activation, and into place. At the end of a matrix only `count` are left.
static inline void finish(
    Floats values, int64_t column, const Linear& linear, const Output& out, int64_t count, float* to
) {
    Floats bias = {};
    if (linear.bias.value) memcpy(&bias, values_of<float>(linear.bias) + column, std::min<int64_t>(count, LANES) * sizeof(float));
    values = activated(out.activation, values + bias);
    for (int64_t i = 0; i < LANES && i < count; i++) to[i] = out.add ? to[i] + values[i] : values[i];
}

// The same for whole vectors without an activation, or with ReLU: 0 is then the least value.
static inline void finish_whole(Floats values, Floats bias, Floats least, bool add, float* to) {
    values += bias;
    values = values < least ? least : values;
    store(to, add ? load(to) + values : values);
}

// A panel of outputs from `column` on: of rows from `first` on, results that are ready but for what finish() does.
template <class Result>
static void finish_panel(
    const Linear& linear, int64_t first, int64_t rows, int64_t column, const Output& out, Result result
) {
    const Floats least = all(out.activation == RELU ? 0.0f : -INFINITY);
    for (int j = 0; j < WIDE; j++) {
        const int64_t at = column + j * LANES, left = linear.outputs - at;
        float* to = out.values + first * out.stride + at;
        if (left >= LANES && out.activation <= RELU) {
            const Floats bias = linear.bias.value ? load(values_of<float>(linear.bias) + at) : Floats{};
            for (int64_t row = 0; row < rows; row++, to += out.stride)
                finish_whole(result(row, j), bias, least, out.add, to);
        } else if (left > 0) {
            for (int64_t row = 0; row < rows; row++, to += out.stride)
                finish(result(row, j), at, linear, out, left, to);
        }
    }
}

// The outputs from `from` to `to`, of whole panels, of some rows.
static void some_panels(
    const Linear& linear, const Input& x, int64_t first, int64_t rows, int64_t from, int64_t to, const Output& out
) {
    if (!linear.scales) {
        auto weights = values_of<float>(linear.weight) + from * linear.inputs;
        const Operand some = {x.values.data + first * x.values.across, x.values.across, 1};
        multiply_block(some, rows, weights, to - from, linear.inputs, [&](int64_t column, const float* sums) {
            finish_panel(linear, first, rows, from + column, out, [&](int64_t row, int j) {
                return load(sums + row * PANEL + j * LANES);
            });
        });
        return;
    }
    const int64_t steps = steps_of<Quantized>(linear.inputs);
    auto weights = values_of<PackedGroup>(linear.weight) + from * steps;
    const OperandOf<Group> some = {x.numbers.data + first * x.numbers.across, x.numbers.across, 1};
    multiply_block(some, rows, weights, to - from, steps, [&](int64_t column, const int32_t* sums) {
        finish_panel(linear, first, rows, from + column, out, [&](int64_t row, int j) {
            const Floats scales = load(linear.scales + from + column + j * LANES);
            const Ints exact = load(sums + row * PANEL + j * LANES) - WEIGHT_OFFSET * x.sums[first + row];
            return __builtin_convertvector(exact, Floats) * (scales * x.scales[first + row]);
        });
    });
}

// Small weights are multiplied by the calling thread alone: others would take longer to wake than to help.
static void product(const Linear& linear, const Input& x, int64_t rows, const Output& out, int64_t threads) {
    const int64_t weights = static_cast<int64_t>(linear.outputs) * linear.inputs;
    const int64_t panels = (linear.outputs + PANEL - 1) / PANEL;
    if (!panels) return;
    if (weights < ENOUGH_WEIGHTS && weights * rows < ENOUGH_PRODUCTS) threads = 1;
    if (rows < FEW_ROWS) threads = threads_for_small_work(threads);
    parallel_for(threads, linear.outputs, (panels + threads - 1) / threads * PANEL, [&](int64_t from, int64_t to) {
        for (int64_t first = 0; first < rows; first += ROWS_AT_ONCE) {
            const int64_t end = std::min<int64_t>(rows, first + ROWS_AT_ONCE), all = to - from;
            const int64_t together = end - first <= BLOCK ? all : PANEL;  // outputs: their weights are read once
            for (int64_t column = from; column < to; column += together)
                for (int64_t row = first; row < end; row += BLOCK)
                    some_panels(
                        linear, x, row, std::min<int64_t>(BLOCK, end - row), column, column + together, out
                    );
        }
    });
}

// Weights [outputs, inputs] in panels of outputs.
static void pack(const float* weights, int64_t outputs, int64_t inputs, float* packed) {
    for (int64_t first = 0; first < outputs; first += PANEL) {
        const int64_t count = std::min<int64_t>(PANEL, outputs - first);
        pack_strided({weights, inputs, 1}, first, count, PANEL, inputs, packed + first * inputs);
    }
}

// The same in eight bits, with a scale for each output; an output with NaN or infinity has the scale NaN.
static void pack_quantized(const float* weights, int64_t outputs, int64_t inputs, uint8_t* packed, float* scales) {
    const int64_t together = Step<Quantized>::ENTRIES, depth = padded(inputs, together);
    for (int64_t output = 0; output < padded(outputs, PANEL); output++) {
        const float* row = output < outputs ? weights + output * inputs : nullptr;
        float limit = 0, fault = 0;
        for (int64_t i = 0; row && i < inputs; i++) limit = std::fmax(limit, std::fabs(row[i])), fault += row[i] * 0.0f;
        scales[output] = limit / 127.0f + fault;
        const bool zero = !row || fault != 0 || limit == 0;
        uint8_t* to = packed + output / PANEL * PANEL * depth + output % PANEL * together;
        for (int64_t i = 0; i < depth; i++) {
            const float value = zero || i >= inputs ? 0.0f : row[i] / limit * 127.0f;
            const auto rounded = static_cast<uint8_t>(WEIGHT_OFFSET + std::lrint(value));
            to[i / together * PANEL * together + i % together] = rounded;
        }
    }
}
