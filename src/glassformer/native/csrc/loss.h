// The output projection, the softmax over the vocabulary, label-smoothed cross-entropy and all gradients (section 5.4),
// a few rows of logits at a time: with vocabularies of some thousand entries they never leave the second level of the
// cache.
//
// With ε of the probability spread evenly over V entries, the gradient of a logit is p − (1 − ε) · [target] − ε / V.
#pragma once
#include "gemm.h"
#include "softmax.h"
#include <stdexcept>

#define PIECE_BYTES (64 << 20)  // of gradients of logits, and of what was projected; every piece passes over d_weight
#if HAS_AMX
#define LOGIT_ROWS (4 * AMX_SIDE)  // fewer wait for the weights, which come from the third level
#else
#define LOGIT_ROWS CHUNK
#endif

struct ProjectedLoss {
    int64_t tokens, vocabulary, d_model;
    const void* hidden;
    const float *weight, *bias;  // bias: or null
    const int64_t* target;
    float smoothing;
    int32_t bfloat16;          // hidden and its gradient
    void* d_hidden;            // null, as all the others, where no gradient is wanted
    float *d_weight, *d_bias;
    double nll, smooth;        // results: Σ −log p of the target, Σ of the mean of −log p
    int64_t threads;
};

struct RowLoss {
    double nll, smooth;
};

// Logits of one row → the gradient of the loss with respect to them, 0 behind the vocabulary.
template <class T>
static RowLoss loss_of_row(const ProjectedLoss& l, float* logits, int64_t target, int64_t room, T* gradient) {
    const int64_t size = l.vocabulary;
    const float target_logit = logits[target];
    Floats largest = all(-INFINITY), totals = {};
    std::fill(logits + size, logits + room, -INFINITY);
    for (int64_t i = 0; i < room; i += LANES) {
        const Floats some = load(logits + i);
        largest = greater(largest, some);
        totals += some == all(-INFINITY) ? Floats{} : some;
    }
    const float shift = maximum(largest);
    const float denominator = exponentiate(logits, 0, room, shift);
    const float inverse = 1.0f / denominator, even = l.smoothing / size;
    const double log_sum = shift + std::log(static_cast<double>(denominator));
    logits[target] -= (1 - l.smoothing) * denominator;
    if (gradient) {
        for (int64_t i = 0; i < room; i += LANES) write(gradient + i, load(logits + i) * inverse - even);
        std::fill(gradient + size, gradient + room, T{});
    }
    return {log_sum - target_logit, log_sum - static_cast<double>(sum(totals)) / size};
}

// Whether the weights can be packed as they are: in the type of `hidden`, of whole column blocks.
template <class T>
static bool usable_weights(const ProjectedLoss& l) {
    return std::is_same<T, float>::value && l.vocabulary % COLUMN_BLOCK == 0;
}

template <class T>
static T* low_weights(const ProjectedLoss& l, int64_t room) {
    if (usable_weights<T>(l)) return reinterpret_cast<T*>(const_cast<float*>(l.weight));
    return workspace<T>(ROUNDED_WEIGHTS, room * l.d_model);
}

template <class T>
static auto rounding_weights(const ProjectedLoss& l, int64_t room, T* to) {
    if (usable_weights<T>(l)) room = 0;
    return loop(room * l.d_model, COLUMN_BLOCK * l.d_model, [&l, to](int64_t from, int64_t end) {
        const int64_t count = l.vocabulary * l.d_model;
        for (int64_t i = from; i < end; i += LANES) write(to + i, i < count ? load(l.weight + i) : Floats{});
    });
}

// What all threads share.
template <class T>
struct LossWorkspace {
    int64_t size, steps, size_steps;  // of a row of logits; of the sum over d_model, and over a row of logits
    T* low;                           // the weights in the type of `hidden`, only read once they are there
    Unit<T> *outputs, *inputs;        // the same, packed for either product
    Unit<T> *hidden, *gradients;      // of a piece, in panels and column blocks, for the gradient of the weights
    int64_t piece_steps;              // of the sum over the rows of a piece
};

// The loss of some rows, and the gradient of what was projected. That of the logits takes their place.
template <class T>
static void loss_of_rows(
    const ProjectedLoss& l, const LossWorkspace<T>& r, int64_t start, int64_t row, int64_t count, RowLoss* losses
) {
    const int64_t d = l.d_model, first = start + row, apart = r.size * sizeof(float) / sizeof(T);
    auto logits = workspace<float>(LOGITS, LOGIT_ROWS * r.size);
    auto gradients = reinterpret_cast<T*>(logits);
    auto put_logits = [&](int64_t column, const float* sums) {
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < PANEL; j += LANES)
                store(logits + i * r.size + column + j, load(sums + i * PANEL + j));
    };
    multiply_block(
        rows_at(static_cast<const T*>(l.hidden) + first * d, d), count, r.outputs, r.size, r.steps, put_logits
    );
    for (int64_t i = 0; i < count; i++) {
        float* line = logits + i * r.size;
        for (int64_t j = 0; l.bias && j < l.vocabulary; j++) line[j] += l.bias[j];
        losses[first + i] =
            loss_of_row(l, line, l.target[first + i], r.size, l.d_hidden ? gradients + i * apart : nullptr);
    }
    if (!l.d_hidden) return;
    pack_panels<COLUMN_BLOCK>(gradients, apart, count, r.size, row / Step<T>::ENTRIES, r.piece_steps, r.gradients);
    multiply_block(rows_at(gradients, apart), count, r.inputs, d, r.size_steps, [&](int64_t column, const float* sums) {
        T* to = static_cast<T*>(l.d_hidden) + first * d + column;
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < PANEL; j += LANES) write(to + i * d + j, load(sums + i * PANEL + j));
    });
}

// What the rows of a piece add to the gradients of the weights; the first puts it there.
template <class T>
static void add_weight_gradient(const ProjectedLoss& l, const LossWorkspace<T>& r, int64_t start) {
    auto add_some = [&](const float* sums, int64_t count, float* to) {
        for (int64_t j = 0; j < count; j++) to[j] = start ? to[j] + sums[j] : sums[j];
    };
    auto add = [&](int64_t output, int64_t column, const float* sums) {
        if (output < l.vocabulary) add_some(sums, PANEL, l.d_weight + output * l.d_model + column);
    };
    auto add_bias = [&](int64_t output, const float* sums) {
        if (l.d_bias) add_some(sums, std::min<int64_t>(COLUMN_BLOCK, l.vocabulary - output), l.d_bias + output);
    };
    parallel(
        l.threads, weight_gradient_product(r.gradients, r.size, r.hidden, l.d_model, r.piece_steps, add, add_bias)
    );
}

template <class T>
static void projected_loss(ProjectedLoss& l) {
    for (int64_t i = 0; i < l.tokens; i++)
        if (l.target[i] < 0 || l.target[i] >= l.vocabulary) throw std::out_of_range("target");
    const int64_t d = l.d_model, size = padded(l.vocabulary, COLUMN_BLOCK);
    const int64_t at_once = std::max<int64_t>(LOGIT_ROWS, PIECE_BYTES / ((size + d) * sizeof(T)));
    const int64_t pieces = std::max<int64_t>(1, (l.tokens + at_once - 1) / at_once);
    const int64_t piece = padded((l.tokens + pieces - 1) / pieces, TALL);
    LossWorkspace<T> room = {size, steps_of<T>(d), steps_of<T>(size), low_weights<T>(l, size)};
    room.outputs = workspace<Unit<T>>(WEIGHTS, size * room.steps);
    if (l.d_hidden) {
        room.inputs = workspace<Unit<T>>(OUTER_WEIGHTS, room.size_steps * d);
        room.hidden = workspace<Unit<T>>(PACKED_INPUT, steps_of<T>(piece) * d);
        room.gradients = workspace<Unit<T>>(D_LOGITS, steps_of<T>(piece) * size);
    }
    std::vector<RowLoss> losses(l.tokens);
    const int64_t backward = l.d_hidden ? 1 : 0;
    parallel(l.threads, rounding_weights(l, size, room.low));
    parallel(
        l.threads, packing_for_outputs(room.low, size, d, room.outputs),
        packing_rows(room.low, d, backward * size, d, 0, room.size_steps, room.inputs)
    );
    for (int64_t start = 0; start < l.tokens; start += piece) {
        const int64_t rows = std::min(piece, l.tokens - start);
        LossWorkspace<T> r = room;
        r.piece_steps = steps_of<T>(rows);
        const T* hidden = static_cast<const T*>(l.hidden) + start * d;
        parallel(
            l.threads, packing_rows(hidden, d, backward * rows, d, 0, r.piece_steps, r.hidden),
            loop(rows, LOGIT_ROWS, [&](int64_t row, int64_t end) {
                loss_of_rows(l, r, start, row, end - row, losses.data());
            })
        );
        if (backward) add_weight_gradient(l, r, start);
    }
    l.nll = l.smooth = 0;
    for (const RowLoss& each : losses) l.nll += each.nll, l.smooth += each.smooth;
}
