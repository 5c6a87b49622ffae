// What stands around every sub-layer in training (sections 3.1 and 5.4): dropout, the residual sum, LayerNorm.
#pragma once
#include "dropout.h"
#include "matrices.h"

struct Parameter {
    const void* value;
    void* gradient;
};

struct Statistics {
    float mean, rate;  // rate: 1 / √(variance + ε)
};

// (x − mean) · rate · γ + β of one row; β may be null.
template <class T>
static Statistics normalise_row(const T* x, const Parameter& weight, const Parameter& bias, float epsilon, int64_t size, T* to) {
    Floats total = {}, squares = {};
    for (int64_t i = 0; i < size; i += LANES) total += read(x + i);
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

// From the gradient of what LayerNorm gave to that of what it got, in place; `sums`: of γ's gradient, then of β's.
template <class T>
static void normalise_row_backward(const T* x, Statistics of, const Parameter& weight, int64_t size, float* d, float* sums) {
    const T* gamma = static_cast<const T*>(weight.value);
    Floats plain = {}, weighted = {};
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats given = load(d + i), normed = (read(x + i) - of.mean) * of.rate, inner = given * read(gamma + i);
        store(sums + i, load(sums + i) + given * normed);
        store(sums + size + i, load(sums + size + i) + given);
        plain += inner, weighted += inner * normed;
        store(d + i, inner);
    }
    const float mean = sum(plain) / size, along = sum(weighted) / size;
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats normed = (read(x + i) - of.mean) * of.rate;
        store(d + i, (load(d + i) - mean - normed * along) * of.rate);
    }
}

// γ's and β's gradients from those of each CHUNK: this thread's share of the columns.
template <class T>
static void norm_gradient(const float* sums, int64_t rows, int64_t size, const Parameter& weight, const Parameter& bias) {
    const Share mine = share_of(size, LANES);
    for (int64_t i = mine.from; i < mine.to; i += LANES) {
        Floats gamma = {}, beta = {};
        for (int64_t chunk = 0; chunk * CHUNK < rows; chunk++) {
            gamma += load(sums + chunk * 2 * size + i);
            beta += load(sums + chunk * 2 * size + size + i);
        }
        write(static_cast<T*>(weight.gradient) + i, gamma);
        if (bias.gradient) write(static_cast<T*>(bias.gradient) + i, beta);
    }
}

// to = x + dropped y of one row, whose first element is number `start` of all.
template <class T>
static void add_dropped(const T* x, const float* y, int64_t start, const Dropout& by, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = by.threshold ? bytes_from(start + i, by) : Ints{};
        for (int part = 0; part < 4; part++) {
            const int64_t j = i + part * LANES;
            const Floats kept = by.threshold ? kept_of(load(y + j), bytes, part, by) : load(y + j);
            write(to + j, read(x + j) + kept);
        }
    }
}

// to = d where the element was not dropped, scaled.
template <class T>
static void drop_row(const float* d, int64_t start, const Dropout& by, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = by.threshold ? bytes_from(start + i, by) : Ints{};
        for (int part = 0; part < 4; part++) {
            const Floats values = load(d + i + part * LANES);
            write(to + i + part * LANES, by.threshold ? kept_of(values, bytes, part, by) : values);
        }
    }
}
