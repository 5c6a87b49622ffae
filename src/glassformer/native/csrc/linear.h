// y = x Wᵀ + b for a few to a few hundred rows of x, in float32 or with both x and W in eight bits.
//
// W is packed: panels of PANEL outputs, and within a panel the weights of all its outputs for one input (in int8: for
// four inputs) side by side, so that the inner loop reads it from beginning to end. Every entry of y is summed in the
// order of the inputs, whatever the number of rows: a row's result does not depend on what is computed beside it.
#pragma once
#include "activation.h"
#include "microkernel.h"
#include "thread_pool.h"
#if (LANES == 16 && defined(__AVX512VNNI__)) || (LANES == 8 && defined(__AVXVNNI__))
#include <immintrin.h>
#define HAS_INT8 1
#else
#define HAS_INT8 0
#endif

#define ENOUGH_WEIGHTS (1 << 17)  // that reading them by several cores is worth waiting for each other
#define FEW_ROWS 16  // whose products take microseconds
#define ROWS_AT_ONCE 96  // of x, which then stay in the second-level cache while all of W passes by

struct Linear {
    int32_t outputs, inputs;
    const void* weights;  // packed
    const float* scales;  // of each output, or null: float32
    const float* bias;    // or null
};

struct Output {
    float* values;
    int64_t stride;
    Activation activation;
    bool add;  // to what is there: the residual connection
};

// Rows of x, and the same in eight bits: value ≈ scale · byte. `sums` are of the bytes of a row.
struct Input {
    const float* values;
    int64_t stride;
    const int8_t* bytes;
    int64_t byte_stride;
    const float* scales;
    const int32_t* sums;
};

static void quantize(const float* x, int64_t count, int8_t* bytes, float* scale, int32_t* total) {
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
        memset(bytes, 0, padded(count, 4));
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
        *reinterpret_cast<Bytes*>(bytes + i) = __builtin_convertvector(whole, Bytes);
    }
    int32_t result = 0;
    for (int lane = 0; lane < LANES; lane++) result += sums[lane];
    for (; i < count; i++) {
        bytes[i] = static_cast<int8_t>((x[i] * inverse + rounder) - rounder);
        result += bytes[i];
    }
    memset(bytes + count, 0, padded(count, 4) - count);
    *scale = limit / 127.0f;
    *total = result;
}

#if HAS_INT8
static inline Ints add_products(Ints sums, Ints weights, Ints bytes) {
#if LANES == 16
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)weights, (__m512i)bytes);
#else
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)weights, (__m256i)bytes);
#endif
}
#else
static inline Ints add_products(Ints sums, Ints, Ints) { return sums; }
#endif

// Weights are stored as w + 128, since the instruction multiplies unsigned by signed bytes.
template <int ROWS>
ALONE void int8_block(const int8_t* x, int64_t stride, const int8_t* weights, int64_t inputs, Ints* results) {
    Ints sums[ROWS][WIDE] = {};
    for (int64_t i = 0; i < inputs; i += 4, weights += 4 * PANEL) {
        Ints columns[WIDE];
        UNROLL for (int j = 0; j < WIDE; j++) columns[j] = *reinterpret_cast<const Ints*>(weights + 4 * j * LANES);
        UNROLL for (int row = 0; row < ROWS; row++) {
            int32_t four;
            memcpy(&four, x + row * stride + i, 4);
            UNROLL for (int j = 0; j < WIDE; j++) sums[row][j] = add_products(sums[row][j], columns[j], four - Ints{});
        }
    }
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int j = 0; j < WIDE; j++) results[row * WIDE + j] = sums[row][j];
}

// LANES outputs of one row: bias, activation, and into place. At the end of a matrix only `count` are left.
static inline void finish(
    Floats values, int64_t column, const Linear& linear, const Output& out, int64_t count, float* to
) {
    Floats bias = {};
    if (linear.bias) memcpy(&bias, linear.bias + column, std::min<int64_t>(count, LANES) * sizeof(float));
    values = activated(out.activation, values + bias);
    for (int64_t i = 0; i < LANES && i < count; i++) to[i] = out.add ? to[i] + values[i] : values[i];
}

// The same for whole vectors without an activation, or with ReLU: 0 is then the least value.
static inline void finish_whole(Floats values, Floats bias, Floats least, bool add, float* to) {
    values += bias;
    values = values < least ? least : values;
    store(to, add ? load(to) + values : values);
}

static const int8_t* bytes_at(const Linear& linear, int64_t column) {
    return static_cast<const int8_t*>(linear.weights) + column * padded(linear.inputs, 4);
}

// `known`: the sums of bytes, where they are known already, or null.
template <int ROWS>
static inline void multiply(
    const Linear& linear, const Input& x, int64_t first, int64_t column, const Ints* known, Floats* results
) {
    if (!linear.scales) {
        auto weights = static_cast<const float*>(linear.weights) + column * linear.inputs;
        const Operand rows = {x.values + first * x.stride, x.stride, 1};
        add_block<ROWS, true>(rows, weights, linear.inputs, reinterpret_cast<float*>(results));
        return;
    }
    Ints own[ROWS * WIDE];
    const Ints* whole = known ? known : own;
    if (!known) {
        const int8_t* rows = x.bytes + first * x.byte_stride;
        int8_block<ROWS>(rows, x.byte_stride, bytes_at(linear, column), padded(linear.inputs, 4), own);
    }
    for (int j = 0; j < WIDE; j++) {
        const Floats scales = load(linear.scales + column + j * LANES);
        for (int row = 0; row < ROWS; row++) {  // what the 128 in each weight have added is known beforehand
            const Ints exact = whole[row * WIDE + j] - 128 * x.sums[first + row];
            results[row * WIDE + j] = __builtin_convertvector(exact, Floats) * (scales * x.scales[first + row]);
        }
    }
}

template <int ROWS>
static inline void tile(
    const Linear& linear, const Input& x, int64_t first, int64_t column, const Ints* known, const Output& out
) {
    Floats results[ROWS * WIDE];
    multiply<ROWS>(linear, x, first, column, known, results);
    const Floats least = all(out.activation == RELU ? 0.0f : -INFINITY);
    for (int j = 0; j < WIDE; j++) {
        const int64_t at = column + j * LANES, left = linear.outputs - at;
        float* to = out.values + first * out.stride + at;
        if (left >= LANES && out.activation <= RELU) {
            const Floats bias = linear.bias ? load(linear.bias + at) : Floats{};
            for (int row = 0; row < ROWS; row++, to += out.stride)
                finish_whole(results[row * WIDE + j], bias, least, out.add, to);
        } else if (left > 0) {
            for (int row = 0; row < ROWS; row++, to += out.stride)
                finish(results[row * WIDE + j], at, linear, out, left, to);
        }
    }
}

#if HAS_AMX
#define FEW 8  // rows, which the other instructions multiply as fast
// The sums of bytes of some rows and a panel; rows of x behind the last are read too.
static const Ints* multiply_bytes(
    const Linear& linear, const Input& x, int64_t first, int64_t rows, int64_t column, Ints* sums
) {
    const auto bytes = reinterpret_cast<const Pair*>(x.bytes + first * x.byte_stride);
    const auto panel = reinterpret_cast<const Pair*>(bytes_at(linear, column));
    const int64_t steps = x.byte_stride / 4;
    amx_panel<ByteQuads>(bytes, steps, padded(rows, AMX_SIDE), panel, steps, reinterpret_cast<int32_t*>(sums));
    return sums;
}
#endif

// The outputs from `from` to `to`, of whole panels.
static void some_panels(
    const Linear& linear, const Input& x, int64_t rows, int64_t from, int64_t to, const Output& out
) {
#if HAS_AMX
    alignas(64) Ints sums[ROWS_AT_ONCE * WIDE];
    const bool use_amx = linear.scales && rows >= FEW && amx_allowed();
    if (use_amx) configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
#endif
    for (int64_t start = 0; start < rows; start += ROWS_AT_ONCE) {
        const int64_t count = std::min<int64_t>(ROWS_AT_ONCE, rows - start);
        for (int64_t column = from; column < to; column += PANEL) {
            const Ints* known = nullptr;
#if HAS_AMX
            if (use_amx) known = multiply_bytes(linear, x, start, count, column, sums);
#endif
            in_tiles(count, [&](auto height, int64_t row) {
                tile<decltype(height)::value>(
                    linear, x, start + row, column, known ? known + row * WIDE : nullptr, out
                );
            });
        }
    }
#if HAS_AMX
    if (use_amx) _tile_release();
#endif
}

// Small weights are multiplied by the calling thread alone: others would take longer to wake than to help.
static void product(const Linear& linear, const Input& x, int64_t rows, const Output& out, int64_t threads) {
    const int64_t weights = static_cast<int64_t>(linear.outputs) * linear.inputs;
    if (threads == 1 || weights < ENOUGH_WEIGHTS) return some_panels(linear, x, rows, 0, linear.outputs, out);
    const int64_t panels = (linear.outputs + PANEL - 1) / PANEL;
    if (rows < FEW_ROWS) threads = threads_for_small_work(threads);
    parallel_for(threads, linear.outputs, (panels + threads - 1) / threads * PANEL, [&](int64_t from, int64_t to) {
        some_panels(linear, x, rows, from, to, out);
    });
}

static void pack(const float* weights, int64_t outputs, int64_t inputs, void* packed, float* scales) {
    int64_t group = scales ? 4 : 1, depth = padded(inputs, group);
    for (int64_t output = 0; output < padded(outputs, PANEL); output++) {
        const float* row = output < outputs ? weights + output * inputs : nullptr;
        float limit = 0, fault = 0;
        for (int64_t i = 0; row && i < inputs; i++) limit = std::fmax(limit, std::fabs(row[i])), fault += row[i] * 0.0f;
        if (scales) scales[output] = limit / 127.0f + fault;
        int64_t start = output / PANEL * PANEL * depth, lane = output % PANEL;
        for (int64_t i = 0; i < depth; i++) {
            float value = row && i < inputs ? row[i] : 0.0f;
            if (scales && fault != 0) value = 0;
            int64_t at = start + (i / group * PANEL + lane) * group + i % group;
            if (scales)
                static_cast<uint8_t*>(packed)[at] =
                    128 + static_cast<int>(std::rint(limit > 0 ? value / limit * 127.0f : 0));
            else
                static_cast<float*>(packed)[at] = value;
        }
    }
}
