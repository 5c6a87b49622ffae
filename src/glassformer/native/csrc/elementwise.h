// Elementwise operations between matrix products: activations, dropout, layer normalization, the residual sum.
#pragma once
#include "simd.h"
#include "thread_pool.h"

// Activations of a feed-forward layer and their gradients, for training and decoding: ReLU (section 3.3), GELU and its
// approximation with tanh (Hendrycks & Gimpel 2016), SiLU (Elfwing et al. 2018).
enum Activation { NONE, RELU, GELU, SILU, GELU_TANH };  // as ACTIVATIONS in abi.py

// Φ(x), the normal distribution, to 1e-7 (Abramowitz & Stegun 1964, 7.1.26), and e^(−x²/2).
struct Normal {
    Floats below, density;
};

static inline Normal normal(Floats x) {
    const Floats scaled = x * 0.70710678f, size = scaled < 0.0f ? -scaled : scaled;
    const Floats t = 1.0f / (1.0f + 0.3275911f * size), density = exponential(-size * size);
    Floats p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Floats error = 1.0f - p * t * density;
    return {0.5f + 0.5f * (scaled < 0.0f ? -error : error), density};
}

// The factor g(x) of the smooth activations, which are x · g(x): Φ(x), its approximation with tanh, or the logistic
// function. Exponents are bounded, so that every finite x has a finite result.
static inline Floats gate(Activation activation, Floats x) {
    if (activation == GELU) return normal(x).below;
    if (activation == SILU) return 1.0f / (1.0f + exponential(x < -87.0f ? all(87.0f) : -x));
    const Floats twice = 1.59576912f * (x + 0.044715f * x * x * x);  // 2 √(2/π) (x + …)
    return 1.0f - 1.0f / (1.0f + exponential(twice > 80.0f ? all(80.0f) : twice));
}

// NaN stays NaN.
static inline Floats activated(Activation activation, Floats x) {
    if (activation == NONE) return x;
    if (activation == RELU) return x < 0.0f ? Floats{} : x;
    return x * gate(activation, x);
}

// The activation of x, and from the gradient d of this result to that of x. ReLU's depends on the sign alone, so x may
// be its result.
struct ActivationGradient {
    Floats activated, gradient;
};

static inline ActivationGradient activation_gradient(Activation activation, Floats x, Floats d) {
    if (activation == RELU) return {x < 0.0f ? Floats{} : x, x > 0.0f ? d : Floats{}};
    if (activation == GELU) {
        const Normal of = normal(x);
        return {x * of.below, d * (of.below + x * of.density * 0.39894228f)};
    }
    const Floats g = gate(activation, x), slope = x * g * (1.0f - g);
    if (activation == SILU) return {x * g, d * (g + slope)};
    return {x * g, d * (g + slope * 1.59576912f * (1.0f + 0.134145f * x * x))};
}

// Dropout (section 5.4). Its mask is never stored: it is a function of a seed and of an element's index, made anew in
// the backward pass.

// Thirty-two well mixed bits for each counter: multiply and fold, as in hash functions (finalizer of MurmurHash3).
static inline Ints mixed(Ints counter, uint32_t low, uint32_t high) {
    typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
    Words x = (Words)counter * 0x9e3779b9u + low;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    x = (x ^ (x >> 16)) + high;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x = (x ^ (x >> 12)) * 0x297a2d39u;
    return (Ints)(x ^ (x >> 15));
}

struct Dropout {
    uint64_t seed;
    int32_t threshold;  // of 256: how many values of a byte drop their element
    float scale;
};

// A byte for each of 4 · LANES elements from `start` on; `part` of them is in bits 8 · part and on.
static inline Ints dropout_bytes(int64_t start, const Dropout& by) {
    Ints lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    const auto block = static_cast<uint32_t>(start / 4);
    const auto above = static_cast<uint32_t>(static_cast<uint64_t>(start) >> 34);
    return mixed(lane + static_cast<int32_t>(block), static_cast<uint32_t>(by.seed),
                 static_cast<uint32_t>(by.seed >> 32) ^ above);
}

static inline Floats apply_dropout(Floats values, Ints bytes, int part, const Dropout& by) {
    return (bytes >> (8 * part) & 255) >= by.threshold ? values * by.scale : Floats{};
}

template <class T>
static inline void drop_some(const T* x, int64_t start, const Dropout& by, T* y) {
    const Ints bytes = dropout_bytes(start, by);
    for (int part = 0; part < 4; part++)
        write(y + part * LANES, apply_dropout(read(x + part * LANES), bytes, part, by));
}

template <class T>
static void drop(const T* x, int64_t count, const Dropout& by, T* y, int64_t threads) {
    const int64_t whole = count / (4 * LANES) * (4 * LANES);
    const int64_t size = padded(chunk_size(threads, whole), 4 * LANES);
    parallel_for(threads, whole, size, [&](int64_t from, int64_t to) {
        for (int64_t start = from; start < to; start += 4 * LANES) drop_some(x + start, start, by, y + start);
    });
    if (whole < count) {
        T rest[4 * LANES] = {}, dropped[4 * LANES];
        memcpy(rest, x + whole, (count - whole) * sizeof(T));
        drop_some(rest, whole, by, dropped);
        memcpy(y + whole, dropped, (count - whole) * sizeof(T));
    }
}

// LayerNorm in training, where the backward pass recomputes it from x and its statistics; then the residual sum.
struct Parameter {
    const void* value;
    void* gradient;
};

struct Statistics {
    float mean, rate;  // rate: 1 / √(variance + ε)
};

// (x − mean) · rate · γ + β of one row; β may be null. If it is not `centered`, it is RMSNorm (Zhang & Sennrich 2019),
// whose mean is 0.
template <class T>
static Statistics normalize_row(
    const T* x, const Parameter& weight, const Parameter& bias, float epsilon, bool centered, int64_t size, T* to
) {
    Floats total = {}, squares = {};
    for (int64_t i = 0; centered && i < size; i += LANES) total += read(x + i);
    const float mean = sum(total) / size;
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats difference = read(x + i) - mean;
        squares += difference * difference;
    }
    const float rate = 1.0f / std::sqrt(sum(squares) / size + epsilon);
    const T *gamma = static_cast<const T*>(weight.value), *beta = static_cast<const T*>(bias.value);
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats scaled = (read(x + i) - mean) * rate * read(gamma + i);
        write(to + i, beta ? scaled + read(beta + i) : scaled);
    }
    return {mean, rate};
}

// From the gradient of what the normalization gave to that of what it got, in place; `sums`: of γ's gradient, then of
// β's.
template <class T>
static void normalize_row_backward(
    const T* x, Statistics of, const Parameter& weight, bool centered, int64_t size, float* d, float* sums
) {
    const T* gamma = static_cast<const T*>(weight.value);
    Floats plain = {}, weighted = {};
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats gradient = load(d + i), normed = (read(x + i) - of.mean) * of.rate,
                     inner = gradient * read(gamma + i);
        store(sums + i, load(sums + i) + gradient * normed);
        store(sums + size + i, load(sums + size + i) + gradient);
        plain += inner, weighted += inner * normed;
        store(d + i, inner);
    }
    const float mean = centered ? sum(plain) / size : 0.0f, along = sum(weighted) / size;
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats normed = (read(x + i) - of.mean) * of.rate;
        store(d + i, (load(d + i) - mean - normed * along) * of.rate);
    }
}

// to = x + dropped y of one row, whose first element is number `start` of all.
template <class T>
static void add_dropped(const T* x, const float* y, int64_t start, const Dropout& by, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = by.threshold ? dropout_bytes(start + i, by) : Ints{};
        for (int part = 0; part < 4; part++) {
            const int64_t j = i + part * LANES;
            const Floats dropped = by.threshold ? apply_dropout(load(y + j), bytes, part, by) : load(y + j);
            write(to + j, read(x + j) + dropped);
        }
    }
}

// to = d where the element was not dropped, scaled.
template <class T>
static void drop_row(const float* d, int64_t start, const Dropout& by, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = by.threshold ? dropout_bytes(start + i, by) : Ints{};
        for (int part = 0; part < 4; part++) {
            const Floats values = load(d + i + part * LANES);
            write(to + i + part * LANES, by.threshold ? apply_dropout(values, bytes, part, by) : values);
        }
    }
}
