// The end of a training step in one pass over the weights: Adam (Kingma & Ba 2015, algorithm 1), the moving average,
// and the copy in bfloat16.
#pragma once
#include "simd.h"
#include "thread_pool.h"
#include <algorithm>
#include <vector>

#define WEIGHTS_AT_ONCE 16384

struct ParameterState {  // one tensor
    float* value;
    const void* gradient;
    float *exp_avg, *exp_avg_sq;  // the moments m and v
    float* average;          // or null
    uint16_t* bf16_copy;     // or null
    int64_t count;
    float rate, correction;  // α / (1 − β1ᵗ) and 1 / √(1 − β2ᵗ)
    float decay;             // factor on the weight, apart from the gradient (AdamW)
    int32_t bfloat16;        // the gradient
};

struct Update {
    const ParameterState* parameters;
    int64_t count;
    double squared_norm;  // of all gradients; a result
    float scale;          // of the gradients, to clip their norm
    float beta1, beta2, epsilon, averaging;
    int64_t threads;
};

struct SomeWeights {
    const ParameterState* parameter;
    int64_t from, to;
};

static std::vector<SomeWeights> in_some(const Update& update) {
    std::vector<SomeWeights> all;
    for (int64_t i = 0; i < update.count; i++)
        for (int64_t from = 0; from < update.parameters[i].count; from += WEIGHTS_AT_ONCE)
            all.push_back({update.parameters + i, from, std::min(from + WEIGHTS_AT_ONCE, update.parameters[i].count)});
    return all;
}

// LANES entries, or those that there are; the rest is 0.
template <class T>
static inline Floats read_some(const T* from, int64_t count) {
    if (count >= LANES) return read(from);
    T some[LANES] = {};
    memcpy(some, from, count * sizeof(T));
    return read(some);
}

template <class T>
static inline void write_some(T* to, Floats values, int64_t count) {
    if (count >= LANES) return write(to, values);
    T some[LANES];
    write(some, values);
    memcpy(to, some, count * sizeof(T));
}

static inline Floats gradient_at(const ParameterState& parameter, int64_t i, int64_t count) {
    if (parameter.bfloat16) return read_some(static_cast<const uint16_t*>(parameter.gradient) + i, count);
    return read_some(static_cast<const float*>(parameter.gradient) + i, count);
}

static void measure(Update& update) {
    const auto all = in_some(update);
    std::vector<double> sums(all.size());
    const auto parts = static_cast<int64_t>(all.size());
    parallel_for(update.threads, parts, 1, [&](int64_t part, int64_t) {
        const SomeWeights& some = all[part];
        Floats squares = {};
        for (int64_t i = some.from; i < some.to; i += LANES) {
            const Floats gradient = gradient_at(*some.parameter, i, some.to - i);
            squares += gradient * gradient;
        }
        sums[part] = sum(squares);
    });
    update.squared_norm = 0;
    for (double each : sums) update.squared_norm += each;
}

static inline Floats square_root(Floats x) {
    Floats y;
    for (int i = 0; i < LANES; i++) y[i] = __builtin_sqrtf(x[i]);
    return y;
}

static void update_some(const Update& update, const SomeWeights& some) {
    const ParameterState& parameter = *some.parameter;
    for (int64_t i = some.from; i < some.to; i += LANES) {
        const int64_t count = some.to - i;
        const Floats gradient = gradient_at(parameter, i, count) * update.scale;
        Floats value = read_some(parameter.value + i, count);
        value *= parameter.decay;
        Floats mean = read_some(parameter.exp_avg + i, count), variance = read_some(parameter.exp_avg_sq + i, count);
        mean += (gradient - mean) * (1 - update.beta1);
        variance = variance * update.beta2 + gradient * gradient * (1 - update.beta2);
        value -= mean * parameter.rate / (square_root(variance) * parameter.correction + update.epsilon);
        write_some(parameter.exp_avg + i, mean, count), write_some(parameter.exp_avg_sq + i, variance, count);
        write_some(parameter.value + i, value, count);
        if (parameter.bf16_copy) write_some(parameter.bf16_copy + i, value, count);
        if (parameter.average) {
            const Floats average = read_some(parameter.average + i, count);
            write_some(parameter.average + i, average + (value - average) * update.averaging, count);
        }
    }
}

static void update_weights(const Update& update) {
    const auto all = in_some(update);
    const auto parts = static_cast<int64_t>(all.size());
    parallel_for(update.threads, parts, 1, [&](int64_t part, int64_t) { update_some(update, all[part]); });
}
