// The encoder stack over whole sentences and the decoder stack over the newest token of each hypothesis, without
// gradients.
//
// Nothing is padded: sentences lie one behind the other. Everything between the products of matrices is float32; what
// the decoder attends to may be kept in bfloat16.
#pragma once
#include "linear.h"
#include "cached_attention.h"
#include "elementwise.h"
#include "heads.h"
#include <stdexcept>
#include <vector>

struct Layer {
    Norm own_norm, cross_norm, feed_forward_norm;
    Linear own, own_output;                  // q, k and v in one product
    Linear query, memory, cross_output;      // memory: k and v; a decoder's only
    Linear inner, outer;
};

struct Turns {  // cosines and sines of rotary positions, as in heads.h; or nulls
    const float *cosines, *sines;
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

// Key–value cache of the decoder's hypotheses. `past[t]` holds position t: for each layer, for each of the
// `past_rows[t]` hypotheses of that step, its keys and values; hypothesis r continues the one in row ancestor[r][t].
struct Past {
    int64_t positions;  // the newest included
    void* const* past;
    const int64_t* past_rows;
    int32_t* ancestor;            // [rows, stride]
    int64_t stride;
    const void* const* memory;    // of each layer: [source tokens, keys and values]
    const int64_t *first, *length;  // of each sentence, in source tokens
    int64_t rows_per_sentence;
    int32_t bfloat16;  // keys and values
};

namespace {

// Scratch memory that a thread keeps between calls: fresh pages cost more than what is computed in them.
template <class T>
T* scratch(int slot, int64_t count) {
    thread_local std::vector<char> buffers[9];
    auto& buffer = buffers[slot];
    if (buffer.size() < count * sizeof(T) + 64) buffer.resize(count * sizeof(T) + 64);
    auto address = reinterpret_cast<uintptr_t>(buffer.data());
    return reinterpret_cast<T*>((address + 63) / 64 * 64);
}

void linear(const Linear& by, const float* x, int64_t rows, Output out) {
    Input input{x, by.inputs, nullptr, 0, nullptr, nullptr};
    if (by.scales) {
        const int64_t stride = padded(by.inputs, 4);
        auto bytes = scratch<int8_t>(0, padded(rows, 16) * stride);
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
        linear(
            layer.inner, input, rows, {hidden, layer.inner.outputs, static_cast<Activation>(stack.activation), false}
        );
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

// Queries and keys, which lie side by side, by the angles of `position`.
void turn(const Heads& heads, const Turns& turns, int64_t position, float* qkv) {
    for (int head = 0; turns.cosines && head < 2 * heads.count; head++, qkv += heads.d_k)
        rotate_head(qkv, turns.cosines + position * heads.d_k, turns.sines + position * heads.d_k, heads.d_k, qkv);
}

void attend_within(
    const Stack& stack, const Layer& layer, const Turns& turns, float* x, const int64_t* first, int64_t sentences
) {
    const int64_t rows = first[sentences], width = layer.own.outputs, values = stack.heads.values();
    add_and_norm(stack, layer.own_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = scratch<float>(4, rows * width);
        auto context = scratch<float>(5, rows * values);
        linear(layer.own, input, rows, {qkv, width, NONE, false});
        for (int64_t sentence = 0; sentence < sentences; sentence++) {
            const float* keys = qkv + first[sentence] * width + stack.heads.keys();
            const int64_t length = first[sentence + 1] - first[sentence];
            float* scores = room_for_scores(stack.heads, length);
            auto seen = scratch<const float*>(8, length);
            for (int64_t i = 0; i < length; i++) turn(stack.heads, turns, i, qkv + (first[sentence] + i) * width);
            for (int64_t t = 0; t < length; t++) seen[t] = keys + t * width;
            for (int64_t row = first[sentence]; row < first[sentence + 1]; row++)
                attend(stack.heads, qkv + row * width, length, seen, context + row * values, scores);
        }
        linear(layer.own_output, context, rows, out);
    });
}

template <class Unit>
void attend_past(const Stack& stack, int index, const Turns& turns, float* x, int64_t rows, const Past& past) {
    const Layer& layer = stack.layer[index];
    const int64_t keys = stack.heads.keys(), values = stack.heads.values(), width = keys + values;
    add_and_norm(stack, layer.own_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = scratch<float>(4, rows * layer.own.outputs);
        auto context = scratch<float>(5, rows * values);
        linear(layer.own, input, rows, {qkv, layer.own.outputs, NONE, false});
        for (int64_t row = 0; row < rows; row++)
            turn(stack.heads, turns, past.positions - 1, qkv + row * layer.own.outputs);
        Unit* newest = static_cast<Unit*>(past.past[past.positions - 1]);
        for (int64_t row = 0; row < rows; row++)
            put(qkv + row * layer.own.outputs + keys, width, newest + (index * rows + row) * width);
        float* scores = room_for_scores(stack.heads, past.positions);
        auto seen = scratch<const Unit*>(8, past.positions);
        for (int64_t row = 0; row < rows; row++) {
            const int32_t* ancestor = past.ancestor + row * past.stride;
            for (int64_t t = 0; t < past.positions; t++)
                seen[t] = static_cast<Unit*>(past.past[t]) + (index * past.past_rows[t] + ancestor[t]) * width;
            attend(stack.heads, qkv + row * layer.own.outputs, past.positions, seen, context + row * values, scores);
        }
        linear(layer.own_output, context, rows, out);
    });
}

template <class Unit>
void attend_memory(const Stack& stack, int index, float* x, int64_t rows, const Past& past) {
    const Layer& layer = stack.layer[index];
    const int64_t keys = stack.heads.keys(), values = stack.heads.values();
    add_and_norm(stack, layer.cross_norm, x, rows, [&](const float* input, Output out) {
        auto q = scratch<float>(4, rows * keys);
        auto context = scratch<float>(5, rows * values);
        linear(layer.query, input, rows, {q, keys, NONE, false});
        for (int64_t row = 0; row < rows; row++) {
            const int64_t sentence = row / past.rows_per_sentence, length = past.length[sentence];
            auto memory = static_cast<const Unit*>(past.memory[index]) + past.first[sentence] * (keys + values);
            auto seen = scratch<const Unit*>(8, length);
            for (int64_t t = 0; t < length; t++) seen[t] = memory + t * (keys + values);
            attend(
                stack.heads, q + row * keys, length, seen, context + row * values, room_for_scores(stack.heads, length)
            );
        }
        linear(layer.cross_output, context, rows, out);
    });
}

template <class Unit>
void decoder_layer(const Stack& stack, int index, const Turns& turns, float* x, int64_t rows, const Past& past) {
    attend_past<Unit>(stack, index, turns, x, rows, past);
    attend_memory<Unit>(stack, index, x, rows, past);
    feed_forward(stack, stack.layer[index], x, rows);
}

}  // namespace
