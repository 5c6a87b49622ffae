// The softmax of rows of logits in their place, the target's share of the gradient, and what the loss is made of.
#pragma once
#include "vectors.h"
#include <vector>

// Each row becomes softmax(row), `taken` less at its target; nll = −log p_target; log_sum = log Σ e^logit.
template <class T>
static void softmax_rows(
    T* rows, int64_t count, int64_t size, const int64_t* target, float taken, float* nll, float* log_sums, int64_t threads
) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t index = 0; index < count; index++) {
        thread_local std::vector<float> kept;
        kept.resize(size + LANES);
        T* row = rows + index * size;
        int64_t i = 0;
        Floats largest = all(-INFINITY), total = {};
        for (; i + LANES <= size; i += LANES) {
            const Floats values = read(row + i);
            store(kept.data() + i, values);
            largest = greater(largest, values);
        }
        for (; i < size; i++) kept[i] = single(row[i]);
        for (int64_t j = size; j < size + LANES; j++) kept[j] = -INFINITY;
        for (i = size / LANES * LANES; i < size; i += LANES) largest = greater(largest, load(kept.data() + i));
        const float shift = maximum(largest), wanted = kept[target[index]];
        for (i = 0; i < size; i += LANES) {
            const Floats values = exponential(load(kept.data() + i) - shift);
            store(kept.data() + i, values);
            total += values;
        }
        const float sum_of_all = sum(total), inverse = 1.0f / sum_of_all;
        log_sums[index] = shift + std::log(sum_of_all);
        nll[index] = log_sums[index] - wanted;
        kept[target[index]] -= taken * sum_of_all;
        for (i = 0; i + LANES <= size; i += LANES) write(row + i, load(kept.data() + i) * inverse);
        for (; i < size; i++) put_single(row + i, kept[i] * inverse);
    }
}
