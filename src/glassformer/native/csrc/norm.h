// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019) of one row, and their gradients.
#pragma once
#include "arguments.h"
#include "packing.h"
#include "workspace.h"

struct Statistics {
    float mean, rstd;  // rstd: 1 / √(variance + ε)
};

// The mean of RMSNorm is 0.
template <class T>
static Statistics statistics_of(const Norm& norm, const T* x, int64_t size) {
    const bool centered = !norm.rms;
    const int64_t full = centered ? size / LANES * LANES : 0;
    Floats totals = {}, sum_of_squares = {};
    for (int64_t i = 0; i < full; i += LANES) totals += read(x + i);
    float total = sum(totals);
    for (int64_t i = full; centered && i < size; i++) total += single(x[i]);
    const float mean = total / size;
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const Floats difference = read(x + i) - mean;
        sum_of_squares += difference * difference;
    }
    float variance = sum(sum_of_squares);
    for (; i < size; i++) variance += (single(x[i]) - mean) * (single(x[i]) - mean);
    // On overflow LayerNorm yields NaN, as in PyTorch, instead of 1 / ∞.
    const bool finite = !centered || std::isfinite(variance);
    return {mean, finite ? 1.0f / std::sqrt(variance / size + norm.epsilon) : NAN};
}

// to = (x − mean) · rstd · γ + β; β may be null, and `to` x.
template <class T>
static void apply_norm(const T* x, Statistics statistics, const T* gamma, const T* beta, int64_t size, T* to) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const Floats scaled = (read(x + i) - statistics.mean) * statistics.rstd * read(gamma + i);
        write(to + i, beta ? scaled + read(beta + i) : scaled);
    }
    for (; i < size; i++)
        put_single(
            to + i,
            (single(x[i]) - statistics.mean) * statistics.rstd * single(gamma[i]) + (beta ? single(beta[i]) : 0.0f)
        );
}

template <class T>
static Statistics normalize(const Norm& norm, const T* x, int64_t size, T* to) {
    const Statistics statistics = statistics_of(norm, x, size);
    apply_norm(x, statistics, values_of<T>(norm.weight), values_of<T>(norm.bias), size, to);
    return statistics;
}

// Replace the gradient d of the result by that of x; add the gradients of γ and β to `sums` [2, size]. The size is a
// multiple of LANES.
template <class T>
static void normalize_backward(
    const Norm& norm, const T* x, Statistics statistics, int64_t size, float* d, float* sums
) {
    const T* gamma = values_of<T>(norm.weight);
    Floats plain = {}, weighted = {};
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats gradient = load(d + i), normalized = (read(x + i) - statistics.mean) * statistics.rstd,
                     inner = gradient * read(gamma + i);
        store(sums + i, load(sums + i) + gradient * normalized);
        store(sums + size + i, load(sums + size + i) + gradient);
        plain += inner, weighted += inner * normalized;
        store(d + i, inner);
    }
    const float mean = norm.rms ? 0.0f : sum(plain) / size, slope = sum(weighted) / size;
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats normalized = (read(x + i) - statistics.mean) * statistics.rstd;
        store(d + i, (load(d + i) - mean - normalized * slope) * statistics.rstd);
    }
}

// Gradients of γ and β: each chunk of rows has its own sums, so that no bit depends on the threads.
static float* sums_of_chunks(int64_t rows, int64_t d) {
    const int64_t count = ceil_div(rows, CHUNK) * 2 * d;
    auto sums = workspace<float>(NORM_SUMS, count);
    std::fill(sums, sums + count, 0.0f);
    return sums;
}

// The gradients, from the sums [chunks, 2, size].
template <class T>
static auto norm_gradient(const Norm& norm, const float* sums, int64_t rows, int64_t size) {
    const Parameter weight = norm.weight, bias = norm.bias;
    return loop(size, COLUMN_BLOCK, [=](int64_t from, int64_t end) {
        for (int64_t i = from; i < end; i += LANES) {
            Floats gamma = {}, beta = {};
            for (int64_t chunk = 0; chunk * CHUNK < rows; chunk++) {
                gamma += load(sums + chunk * 2 * size + i);
                beta += load(sums + chunk * 2 * size + size + i);
            }
            write(static_cast<T*>(weight.gradient) + i, gamma);
            if (bias.gradient) write(static_cast<T*>(bias.gradient) + i, beta);
        }
    });
}
