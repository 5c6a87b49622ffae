// Steps of a search over logits, exported.
#include "api.h"
#include "candidates.h"

// log Σ e^x of each row; below, its k greatest entries in descending order with their indices.
API int32_t log_sums(const float* x, int64_t rows, int64_t count, float* results) {
    return guarded([&] {
        for (int64_t row = 0; row < rows; row++) results[row] = log_sum(x + row * count, count);
    });
}

API int32_t best_of(const float* x, int64_t rows, int64_t count, int64_t k, float* values, int64_t* indices) {
    return guarded([&] {
        for (int64_t row = 0; row < rows; row++) best(x + row * count, count, k, values + row * k, indices + row * k);
    });
}

API int32_t extend_hypotheses(Extension* extension) {
    return guarded([&] { extend(*extension); });
}
