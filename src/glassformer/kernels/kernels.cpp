// The encoder stack over whole sentences and the decoder stack over the newest token of each hypothesis, in one call.
//
// Nothing is padded: sentences lie one behind the other. Everything between the products of matrices is float32.
// The caller owns all memory that outlives a call.
#include "linear.h"
#include "attention.h"
#include "norm.h"
#include "candidates.h"
#include "dropout.h"
#include "loss.h"
#include "products.h"
#include "rotary.h"
#include "training_attention.h"
#include <new>
#include <stdexcept>
#include <vector>

struct Layer {
    Norm own_norm, cross_norm, feed_forward_norm;
    Linear own, own_output;                  // q, k and v in one product
    Linear query, memory, cross_output;      // memory: k and v; a decoder's only
    Linear inner, outer;
};

struct Stack {
    int32_t layers, d_model;
    Heads heads;
    int32_t pre_norm, activation;
    const Layer* layer;
    Norm last;
    const float* embedding;  // [vocabulary, d_model]
    int64_t vocabulary;
};

// What the decoder's hypotheses have behind them. `past[t]` holds position t: for each layer, for each of the
// `past_rows[t]` hypotheses of that step, its keys and values; hypothesis r continues the one in row ancestor[r][t].
struct Past {
    int64_t positions;  // the newest included
    float* const* past;
    const int64_t* past_rows;
    int32_t* ancestor;            // [rows, stride]
    int64_t stride;
    const float* const* memory;   // of each layer: [source tokens, keys and values]
    const int64_t *first, *length;  // of each sentence, in source tokens
    int64_t rows_per_sentence;
};

namespace {

// Scratch memory that a thread keeps between calls: fresh pages cost more than what is computed in them.
template <class T>
T* scratch(int slot, int64_t count) {
    thread_local std::vector<char> buffers[8];
    auto& buffer = buffers[slot];
    if (buffer.size() < count * sizeof(T) + 64) buffer.resize(count * sizeof(T) + 64);
    auto address = reinterpret_cast<uintptr_t>(buffer.data());
    return reinterpret_cast<T*>((address + 63) / 64 * 64);
}

void linear(const Linear& by, const float* x, int64_t rows, Output out) {
    Input input{x, by.inputs, nullptr, 0, nullptr, nullptr};
    if (by.scales) {
        const int64_t stride = padded(by.inputs, 4);
        auto bytes = scratch<int8_t>(0, rows * stride);
        auto scales = scratch<float>(1, rows);
        auto sums = scratch<int32_t>(2, rows);
        for (int64_t row = 0; row < rows; row++)
            quantise(x + row * by.inputs, by.inputs, bytes + row * stride, scales + row, sums + row);
        input.bytes = bytes, input.byte_stride = stride, input.scales = scales, input.sums = sums;
    }
    product(by, input, rows, out);
}

// x + Sublayer(LayerNorm(x)), or LayerNorm(x + Sublayer(x)): the sub-layer adds its result to x itself.
template <class Sublayer>
void add_and_norm(const Stack& stack, const Norm& norm, float* x, int64_t rows, Sublayer sublayer) {
    const int64_t d = stack.d_model;
    const float* input = x;
    if (stack.pre_norm) {
        auto normed = scratch<float>(3, rows * d);
        for (int64_t row = 0; row < rows; row++) normalise(norm, x + row * d, d, normed + row * d);
        input = normed;
    }
    sublayer(input, Output{x, d, NONE, true});
    if (!stack.pre_norm)
        for (int64_t row = 0; row < rows; row++) normalise(norm, x + row * d, d, x + row * d);
}

void feed_forward(const Stack& stack, const Layer& layer, float* x, int64_t rows) {
    add_and_norm(stack, layer.feed_forward_norm, x, rows, [&](const float* input, Output out) {
        auto hidden = scratch<float>(4, rows * layer.inner.outputs);
        linear(layer.inner, input, rows, {hidden, layer.inner.outputs, static_cast<Activation>(stack.activation), false});
        linear(layer.outer, hidden, rows, out);
    });
}

void last_norm(const Stack& stack, float* x, int64_t rows) {
    if (!stack.last.weight) return;
    for (int64_t row = 0; row < rows; row++)
        normalise(stack.last, x + row * stack.d_model, stack.d_model, x + row * stack.d_model);
}

float* room_for_scores(const Heads& heads, int64_t count) {
    return scratch<float>(7, heads.count * (padded(count, LANES) + LANES));
}

// Section 3.4: the token's row × √d_model, added to its position in x.
void embed(const Stack& stack, int64_t id, float* x) {
    if (id < 0 || id >= stack.vocabulary) throw std::out_of_range("id");
    const float factor = std::sqrt(static_cast<float>(stack.d_model));
    const float* row = stack.embedding + id * stack.d_model;
    for (int64_t i = 0; i < stack.d_model; i++) x[i] = row[i] * factor + x[i];
}

void attend_within(const Stack& stack, const Layer& layer, float* x, const int64_t* first, int64_t sentences) {
    const int64_t rows = first[sentences], width = layer.own.outputs, values = stack.heads.values();
    add_and_norm(stack, layer.own_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = scratch<float>(4, rows * width);
        auto context = scratch<float>(5, rows * values);
        linear(layer.own, input, rows, {qkv, width, NONE, false});
        for (int64_t sentence = 0; sentence < sentences; sentence++) {
            const float* keys = qkv + first[sentence] * width + stack.heads.keys();
            const int64_t length = first[sentence + 1] - first[sentence];
            float* scores = room_for_scores(stack.heads, length);
            for (int64_t row = first[sentence]; row < first[sentence + 1]; row++)
                attend(stack.heads, qkv + row * width, length, [&](int64_t t) { return keys + t * width; },
                       context + row * values, scores);
        }
        linear(layer.own_output, context, rows, out);
    });
}

void attend_past(const Stack& stack, int index, float* x, int64_t rows, const Past& past) {
    const Layer& layer = stack.layer[index];
    const int64_t keys = stack.heads.keys(), values = stack.heads.values(), width = keys + values;
    add_and_norm(stack, layer.own_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = scratch<float>(4, rows * layer.own.outputs);
        auto context = scratch<float>(5, rows * values);
        linear(layer.own, input, rows, {qkv, layer.own.outputs, NONE, false});
        float* newest = past.past[past.positions - 1];
        for (int64_t row = 0; row < rows; row++)
            memcpy(newest + (index * rows + row) * width, qkv + row * layer.own.outputs + keys, width * sizeof(float));
        float* scores = room_for_scores(stack.heads, past.positions);
        for (int64_t row = 0; row < rows; row++) {
            const int32_t* ancestor = past.ancestor + row * past.stride;
            auto at = [&](int64_t t) { return past.past[t] + (index * past.past_rows[t] + ancestor[t]) * width; };
            attend(stack.heads, qkv + row * layer.own.outputs, past.positions, at, context + row * values, scores);
        }
        linear(layer.own_output, context, rows, out);
    });
}

void attend_memory(const Stack& stack, int index, float* x, int64_t rows, const Past& past) {
    const Layer& layer = stack.layer[index];
    const int64_t keys = stack.heads.keys(), values = stack.heads.values();
    add_and_norm(stack, layer.cross_norm, x, rows, [&](const float* input, Output out) {
        auto q = scratch<float>(4, rows * keys);
        auto context = scratch<float>(5, rows * values);
        linear(layer.query, input, rows, {q, keys, NONE, false});
        for (int64_t row = 0; row < rows; row++) {
            const int64_t sentence = row / past.rows_per_sentence, length = past.length[sentence];
            const float* memory = past.memory[index] + past.first[sentence] * (keys + values);
            attend(stack.heads, q + row * keys, length, [&](int64_t t) { return memory + t * (keys + values); },
                   context + row * values, room_for_scores(stack.heads, length));
        }
        linear(layer.cross_output, context, rows, out);
    });
}

// 0, or what went wrong: no exception may leave for a caller that is not C++.
template <class Work>
int32_t guarded(Work work) {
    try {
        work();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    } catch (const std::out_of_range&) {
        return 2;
    }
}

}  // namespace

extern "C" {

int32_t panel_size() { return PANEL; }
int32_t has_int8() { return HAS_INT8; }

int32_t pack_weights(const float* weights, int64_t outputs, int64_t inputs, void* packed, float* scales) {
    return guarded([&] { pack(weights, outputs, inputs, packed, scales); });
}

int32_t apply_linear(const Linear* by, const float* x, int64_t rows, float* y) {
    return guarded([&] { linear(*by, x, rows, {y, by->outputs, NONE, false}); });
}

// x: [tokens, d_model], sentence behind sentence, holds the positions; first: where each begins, and the last one ends.
int32_t encode(const Stack* stack, const int64_t* ids, float* x, const int64_t* first, int64_t sentences) {
    return guarded([&] {
        for (int64_t token = 0; token < first[sentences]; token++) embed(*stack, ids[token], x + token * stack->d_model);
        for (int index = 0; index < stack->layers; index++) {
            attend_within(*stack, stack->layer[index], x, first, sentences);
            feed_forward(*stack, stack->layer[index], x, first[sentences]);
        }
        last_norm(*stack, x, first[sentences]);
    });
}

// ids: the newest token of each row, at `position` [d_model] (null: nothing is added); logits: [rows, output.outputs].
int32_t decode(
    const Stack* stack, const Linear* output, const int64_t* ids, const float* position, int64_t rows,
    const Past* past, float* logits
) {
    return guarded([&] {
        const int64_t d = stack->d_model;
        float* x = scratch<float>(6, rows * d);
        for (int64_t row = 0; row < rows; row++) {
            if (position) memcpy(x + row * d, position, d * sizeof(float));
            else memset(x + row * d, 0, d * sizeof(float));
            embed(*stack, ids[row], x + row * d);
            past->ancestor[row * past->stride + past->positions - 1] = static_cast<int32_t>(row);
        }
        for (int index = 0; index < stack->layers; index++) {
            attend_past(*stack, index, x, rows, *past);
            attend_memory(*stack, index, x, rows, *past);
            feed_forward(*stack, stack->layer[index], x, rows);
        }
        last_norm(*stack, x, rows);
        linear(*output, x, rows, {logits, output->outputs, NONE, false});
    });
}

int32_t multiply_matrices(const Product* product) {
    return guarded([&] { multiply(*product); });
}

// y = x with some elements zero and the rest scaled; what goes does not depend on their type.
int32_t drop_elements(
    const void* x, int64_t count, int32_t bfloat16, uint64_t seed, int32_t threshold, void* y, int64_t threads
) {
    return guarded([&] {
        const Dropout by = {seed, threshold, 256.0f / (256 - threshold)};
        if (bfloat16) drop(static_cast<const uint16_t*>(x), count, by, static_cast<uint16_t*>(y), threads);
        else drop(static_cast<const float*>(x), count, by, static_cast<float*>(y), threads);
    });
}

int32_t attend_whole(const Attention* attention, int32_t backward) {
    return guarded([&] {
        if (attention->bfloat16) attend_all<uint16_t>(*attention, backward);
        else attend_all<float>(*attention, backward);
    });
}

int32_t rotate_pairs(const Rotation* rotation) {
    return guarded([&] {
        if (rotation->bfloat16) rotate<uint16_t>(*rotation);
        else rotate<float>(*rotation);
    });
}

int32_t softmax_with_target(
    void* rows, int64_t count, int64_t size, int32_t bfloat16, const int64_t* target, float taken, float* nll,
    float* log_sums, int64_t threads
) {
    return guarded([&] {
        for (int64_t row = 0; row < count; row++)
            if (target[row] < 0 || target[row] >= size) throw std::out_of_range("target");
        if (bfloat16) softmax_rows(static_cast<uint16_t*>(rows), count, size, target, taken, nll, log_sums, threads);
        else softmax_rows(static_cast<float*>(rows), count, size, target, taken, nll, log_sums, threads);
    });
}

// Of each row: log Σ e^x; the k greatest, best first, and where they are.
int32_t log_sums(const float* x, int64_t rows, int64_t count, float* results) {
    return guarded([&] {
        for (int64_t row = 0; row < rows; row++) results[row] = log_sum(x + row * count, count);
    });
}

int32_t best_of(const float* x, int64_t rows, int64_t count, int64_t k, float* values, int64_t* indices) {
    return guarded([&] {
        for (int64_t row = 0; row < rows; row++) best(x + row * count, count, k, values + row * k, indices + row * k);
    });
}

}  // extern "C"
