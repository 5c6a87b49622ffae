// Layer normalisation of one position: (x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016).
#pragma once
#include "vectors.h"

struct Norm {
    const float *weight, *bias;  // weight is null where there is no norm
    float epsilon;
};

static void normalise(const Norm& norm, const float* x, int64_t size, float* to) {
    Floats total = {};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) total += load(x + i);
    float sum_of_all = sum(total);
    for (; i < size; i++) sum_of_all += x[i];
    const float mean = sum_of_all / size;
    Floats squares = {};
    for (i = 0; i + LANES <= size; i += LANES) {
        Floats difference = load(x + i) - mean;
        squares += difference * difference;
    }
    float variance = sum(squares);
    for (; i < size; i++) variance += (x[i] - mean) * (x[i] - mean);
    // On overflow the result is NaN, as in PyTorch, and not a rate of 0.
    const float rate = std::isfinite(variance) ? 1.0f / std::sqrt(variance / size + norm.epsilon) : NAN;
    for (i = 0; i + LANES <= size; i += LANES)
        store(to + i, (load(x + i) - mean) * rate * load(norm.weight + i) + load(norm.bias + i));
    for (; i < size; i++) to[i] = (x[i] - mean) * rate * norm.weight[i] + norm.bias[i];
}
