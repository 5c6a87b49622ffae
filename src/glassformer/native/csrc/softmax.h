// The softmax of a row (equation 1 and section 3.4), from the exponentials of what is less than its maximum.
#pragma once
#include "simd.h"

// x[from … to) becomes e^(x − shift), and so does what follows to the end of a vector: −∞ becomes 0. Returns the sum.
static inline float exponentiate(float* x, int64_t from, int64_t to, float shift) {
    Floats totals = {};
    for (int64_t i = from; i < to; i += LANES) {
        const Floats some = exponential(load(x + i) - shift);
        store(x + i, some);
        totals += some;
    }
    return sum(totals);
}

// Probabilities in place of scores whose maximum is `shift`. Returns their denominator.
static inline float softmax(float* scores, int64_t from, int64_t to, float shift) {
    const float denominator = exponentiate(scores, from, to, shift), inverse = 1.0f / denominator;
    for (int64_t i = from; i < to; i += LANES) store(scores + i, load(scores + i) * inverse);
    return denominator;
}
