// The softmax of a row (equation 1 and section 3.4), shifted by its maximum.
#pragma once
#include "simd.h"

// Replace x[from … to), up to the end of a vector, by e^(x − shift); −∞ yields 0. Returns the sum.
static inline float exponentiate(float* x, int64_t from, int64_t to, float shift) {
    Floats totals = {};
    for (int64_t i = from; i < to; i += LANES) {
        const Floats values = exponential(load(x + i) - shift);
        store(x + i, values);
        totals += values;
    }
    return sum(totals);
}

// Replace scores with maximum `shift` by probabilities. Returns their denominator.
static inline float softmax(float* scores, int64_t from, int64_t to, float shift) {
    const float denominator = exponentiate(scores, from, to, shift), inverse = 1.0f / denominator;
    for (int64_t i = from; i < to; i += LANES) store(scores + i, load(scores + i) * inverse);
    return denominator;
}
