// The softmax of a row (equation 1 and section 3.4), shifted by its maximum.
#pragma once
#include "simd.h"
#include <type_traits>

// Replace x[from … to), up to the end of a vector, by e^(x − shift), as precise as results in T need it; −∞ yields 0.
// Returns the sum.
template <class T = float>
static inline float exponentiate(float* x, int64_t from, int64_t to, float shift) {
    constexpr bool rough = std::is_same<T, uint16_t>::value;
    const float power = shift * LOG2_E;
    Floats totals = {};
    for (int64_t i = from; i < to; i += LANES) {
        const Floats values =
            rough ? rough_power_of_two(load(x + i) * LOG2_E - power) : exponential(load(x + i) - shift);
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

// Softmax in place of `count` scores; the buffer has one more vector.
static void softmax_of(float* scores, int64_t count) {
    for (int64_t i = count; i < count + LANES; i++) scores[i] = -INFINITY;
    Floats largest = load(scores);
    for (int64_t i = LANES; i < count; i += LANES) largest = greater(largest, load(scores + i));
    softmax(scores, 0, count, maximum(largest));
}

// log Σ e^x
static float logsumexp(const float* x, int64_t count) {
    Floats largest = broadcast(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) largest = greater(largest, load(x + i));
    float shift = maximum(largest);
    for (; i < count; i++) shift = x[i] > shift ? x[i] : shift;
    if (!std::isfinite(shift)) return shift;
    Floats totals[4] = {};
    for (i = 0; i + 4 * LANES <= count; i += 4 * LANES)
        for (int j = 0; j < 4; j++) totals[j] += exponential(load(x + i + j * LANES) - shift);
    float rest = 0;
    for (; i < count; i++) rest += std::exp(x[i] - shift);
    return shift + std::log(sum((totals[0] + totals[1]) + (totals[2] + totals[3])) + rest);
}
