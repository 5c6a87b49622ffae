// Gradients that are multiplied by a number or added to others, in place.
#pragma once
#include "simd.h"
#include "thread_pool.h"
#include <stdexcept>

#define NUMBERS_AT_ONCE 16384
#define ROWS_AT_A_TIME 16

template <class T>
static void scale(T* x, int64_t count, float factor, int64_t threads) {
    parallel_for(threads, count, NUMBERS_AT_ONCE, [&](int64_t from, int64_t to) {
        int64_t i = from;
        for (; i + LANES <= to; i += LANES) write(x + i, read(x + i) * factor);
        for (; i < to; i++) put_single(x + i, single(x[i]) * factor);
    });
}

// Values [count, width] to be added to rows of a matrix. No row occurs twice.
struct RowSum {
    const int64_t* rows;
    int64_t count, width, matrix_rows;
    const float* values;
    float* matrix;
    int64_t threads;
};

static void add_rows(const RowSum& sum) {
    for (int64_t i = 0; i < sum.count; i++)
        if (sum.rows[i] < 0 || sum.rows[i] >= sum.matrix_rows) throw std::out_of_range("row");
    parallel_for(sum.threads, sum.count, ROWS_AT_A_TIME, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; i++) {
            const float* value = sum.values + i * sum.width;
            float* row = sum.matrix + sum.rows[i] * sum.width;
            for (int64_t j = 0; j < sum.width; j++) row[j] += value[j];
        }
    });
}
