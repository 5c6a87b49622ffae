// Gradients after the backward pass, and the update of the weights in one pass over them: Adam (Kingma & Ba 2015,
// algorithm 1), the moving average, and the bfloat16 copy.
#include "api.h"
#include "arguments.h"
#include "simd.h"
#include "thread_pool.h"
#include <vector>

#define WEIGHTS_AT_ONCE 16384
#define ROWS_AT_A_TIME 16

template <class T>
static void scale(T* x, int64_t count, float factor, int64_t threads) {
    parallel_for(threads, count, WEIGHTS_AT_ONCE, [&](int64_t from, int64_t to) {
        int64_t i = from;
        for (; i + LANES <= to; i += LANES) write(x + i, read(x + i) * factor);
        for (; i < to; i++) put_single(x + i, single(x[i]) * factor);
    });
}

static void add_rows(const RowSum& sum) {
    check_indices(sum.rows, sum.count, sum.matrix_rows, "a row is outside the matrix");
    parallel_for(sum.threads, sum.count, ROWS_AT_A_TIME, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; i++) {
            const float* value = sum.values + i * sum.width;
            float* row = sum.matrix + sum.rows[i] * sum.width;
            for (int64_t j = 0; j < sum.width; j++) row[j] += value[j];
        }
    });
}

#define FETCHED_AHEAD 512  // weights

struct WeightRange {
    const ParameterState* parameter;
    int64_t from, to;
};

static std::vector<WeightRange> weight_ranges(const Update& update) {
    std::vector<WeightRange> all;
    for (int64_t i = 0; i < update.count; i++)
        for (int64_t from = 0; from < update.parameters[i].count; from += WEIGHTS_AT_ONCE)
            all.push_back({update.parameters + i, from, std::min(from + WEIGHTS_AT_ONCE, update.parameters[i].count)});
    return all;
}

static inline Floats gradient_at(const ParameterState& parameter, int64_t i, int64_t count) {
    if (parameter.bfloat16) return read_partial(static_cast<const uint16_t*>(parameter.gradient) + i, count);
    return read_partial(static_cast<const float*>(parameter.gradient) + i, count);
}

static void measure(Update& update) {
    const auto all = weight_ranges(update);
    std::vector<double> sums(all.size());
    const auto n_ranges = static_cast<int64_t>(all.size());
    parallel_for(update.threads, n_ranges, 1, [&](int64_t index, int64_t) {
        const WeightRange& range = all[index];
        Floats sum_of_squares = {};
        const int64_t bytes = range.parameter->bfloat16 ? 2 : 4;
        for (int64_t i = range.from; i < range.to; i += LANES) {
            const Floats gradient = gradient_at(*range.parameter, i, range.to - i);
            __builtin_prefetch(static_cast<const char*>(range.parameter->gradient) + (i + FETCHED_AHEAD) * bytes);
            sum_of_squares += gradient * gradient;
        }
        sums[index] = sum(sum_of_squares);
    });
    update.squared_norm = 0;
    for (double one : sums) update.squared_norm += one;
}

static inline Floats square_root(Floats x) {
    Floats y;
    for (int i = 0; i < LANES; i++) y[i] = __builtin_sqrtf(x[i]);
    return y;
}

// Prefetch what a later round reads. Processors do so by themselves, but only to the end of a page of 4 KiB.
static inline void fetch_state(const ParameterState& parameter, int64_t i) {
    const int64_t at = i + FETCHED_AHEAD;
    __builtin_prefetch(static_cast<const char*>(parameter.gradient) + at * (parameter.bfloat16 ? 2 : 4));
    __builtin_prefetch(parameter.value + at, 1);
    __builtin_prefetch(parameter.exp_avg + at, 1);
    __builtin_prefetch(parameter.exp_avg_sq + at, 1);
    if (parameter.average) __builtin_prefetch(parameter.average + at, 1);
}

// α / (1 − β1ᵗ) and 1 / √(1 − β2ᵗ).
struct StepSize { float rate, correction; };

static StepSize step_size_of(const Update& update, const ParameterState& parameter) {
    const double step = *parameter.step;
    return {
        static_cast<float>(parameter.learning_rate / (1 - std::pow(static_cast<double>(update.beta1), step))),
        static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(update.beta2), step)))
    };
}

static void update_range(const Update& update, const WeightRange& range, StepSize size) {
    const ParameterState& parameter = *range.parameter;
    for (int64_t i = range.from; i < range.to; i += LANES) {
        const int64_t count = range.to - i;
        fetch_state(parameter, i);
        const Floats gradient = gradient_at(parameter, i, count) * update.scale;
        Floats value = read_partial(parameter.value + i, count);
        value *= parameter.decay;
        Floats mean = read_partial(parameter.exp_avg + i, count);
        Floats variance = read_partial(parameter.exp_avg_sq + i, count);
        mean += (gradient - mean) * (1 - update.beta1);
        variance = variance * update.beta2 + gradient * gradient * (1 - update.beta2);
        value -= mean * size.rate / (square_root(variance) * size.correction + update.epsilon);
        write_partial(parameter.exp_avg + i, count, mean), write_partial(parameter.exp_avg_sq + i, count, variance);
        write_partial(parameter.value + i, count, value);
        if (parameter.bf16_copy) write_partial(parameter.bf16_copy + i, count, value);
        if (parameter.average) {
            const Floats average = read_partial(parameter.average + i, count);
            write_partial(parameter.average + i, count, average + (value - average) * update.ema_rate);
        }
    }
}

static void update_weights(const Update& update) {
    const auto all = weight_ranges(update);
    const auto n_ranges = static_cast<int64_t>(all.size());
    std::vector<StepSize> sizes(update.count);
    for (int64_t i = 0; i < update.count; i++) {
        *update.parameters[i].step += 1;
        sizes[i] = step_size_of(update, update.parameters[i]);
    }
    parallel_for(update.threads, n_ranges, 1, [&](int64_t index, int64_t) {
        update_range(update, all[index], sizes[all[index].parameter - update.parameters]);
    });
}

API int32_t scale_numbers(void* x, int64_t count, int32_t bfloat16, float factor, int64_t threads) {
    return guarded([&] {
        if (bfloat16) scale(static_cast<uint16_t*>(x), count, factor, threads);
        else scale(static_cast<float*>(x), count, factor, threads);
    });
}

API int32_t add_matrix_rows(const RowSum* sum) {
    return guarded([&] { add_rows(*sum); });
}

API int32_t measure_gradients(Update* update) {
    return guarded([&] { measure(*update); });
}

API int32_t update_all(const Update* update) {
    return guarded([&] { update_weights(*update); });
}
