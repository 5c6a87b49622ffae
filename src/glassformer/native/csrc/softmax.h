// The softmax of a row (equation 1 and section 3.4), shifted by its maximum.
#pragma once
#include "simd.h"

// Replace `count` numbers, up to the end of a vector, by e^(x − shift); −∞ yields 0. Returns the sum.
static inline float exponentiate(float* x, int64_t count, float shift) {
    Floats totals = {};
    for (int64_t i = 0; i < count; i += LANES) {
        const Floats values = exponential(load(x + i) - shift);
        store(x + i, values);
        totals += values;
    }
    return sum(totals);
}

// Replace scores with maximum `shift` by probabilities.
static inline void softmax(float* scores, int64_t count, float shift) {
    const float inverse = 1.0f / exponentiate(scores, count, shift);
    for (int64_t i = 0; i < count; i += LANES) store(scores + i, load(scores + i) * inverse);
}
