// Normalization of one position in use: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019).
#pragma once
#include "simd.h"

struct Norm {
    const float *weight, *bias;  // weight: null where there is no norm; bias: or null
    float epsilon;
    int32_t rms;  // 1: nothing is centered
};

// Σ (x − mean)² of all entries.
static inline float squared_differences(const float* x, float mean, int64_t size) {
    Floats squares = {};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const Floats difference = load(x + i) - mean;
        squares += difference * difference;
    }
    float total = sum(squares);
    for (; i < size; i++) total += (x[i] - mean) * (x[i] - mean);
    return total;
}

static inline float mean_of(const float* x, int64_t size) {
    Floats total = {};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) total += load(x + i);
    float sum_of_all = sum(total);
    for (; i < size; i++) sum_of_all += x[i];
    return sum_of_all / size;
}

// to = (x − mean) / √(variance + ε) · weight + bias, of RMSNorm with a mean of 0; `to` may be x.
static void normalize(const Norm& norm, const float* x, int64_t size, float* to) {
    const float mean = norm.rms ? 0.0f : mean_of(x, size);
    const float squares = squared_differences(x, mean, size);
    // On overflow the result of LayerNorm is NaN, as in PyTorch, and not a rate of 0.
    const float rate = norm.rms || std::isfinite(squares) ? 1.0f / std::sqrt(squares / size + norm.epsilon) : NAN;
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const Floats scaled = (load(x + i) - mean) * rate * load(norm.weight + i);
        store(to + i, norm.bias ? scaled + load(norm.bias + i) : scaled);
    }
    for (; i < size; i++) to[i] = (x[i] - mean) * rate * norm.weight[i] + (norm.bias ? norm.bias[i] : 0.0f);
}
