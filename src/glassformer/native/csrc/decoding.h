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
    Norm self_norm, cross_norm, feed_forward_norm;
    Linear self_qkv, self_output;            // q, k and v in one product
    Linear query, memory, cross_output;      // memory: k and v; a decoder's only
    Linear inner, outer;
};

struct RotaryTables {  // cosines and sines of rotary positions, as in heads.h; or nulls
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

struct StackCall : Stack {
    int64_t threads;
};

// Key–value cache of the decoder's hypotheses. `keys_values[t]` holds position t: for each layer, for each of the
// `rows[t]` hypotheses of that step, its keys and values; hypothesis r continues the one in row beam_index[r][t].
struct KeyValueCache {
    int64_t positions;  // the newest included
    void* const* keys_values;
    const int64_t* rows;
    int32_t* beam_index;          // [rows, stride]
    int64_t stride;
    const void* const* memory;    // of each layer: [source tokens, keys and values]
    const int64_t *first, *length;  // of each sentence, in source tokens
    int64_t rows_per_sentence;
    int32_t bfloat16;  // keys and values
};

namespace {

// Workspace that a thread reuses between calls: fresh pages cost more than the computation in them.
template <class T>
T* workspace(int slot, int64_t count) {
    thread_local std::vector<char> buffers[9];
    auto& buffer = buffers[slot];
    if (buffer.size() < count * sizeof(T) + 64) buffer.resize(count * sizeof(T) + 64);
    auto address = reinterpret_cast<uintptr_t>(buffer.data());
    return reinterpret_cast<T*>((address + 63) / 64 * 64);
}

void linear(const Linear& by, const float* x, int64_t rows, Output out, int64_t threads) {
    Input input{x, by.inputs, nullptr, 0, nullptr, nullptr};
    if (by.scales) {
        const int64_t stride = padded(by.inputs, 4);
        auto bytes = workspace<int8_t>(0, padded(rows, 16) * stride);
        auto scales = workspace<float>(1, rows);
        auto sums = workspace<int32_t>(2, rows);
        for (int64_t row = 0; row < rows; row++)
            quantize(x + row * by.inputs, by.inputs, bytes + row * stride, scales + row, sums + row);
        input.bytes = bytes, input.byte_stride = stride, input.scales = scales, input.sums = sums;
    }
    product(by, input, rows, out, threads);
}

// x + Sublayer(LayerNorm(x)), or LayerNorm(x + Sublayer(x)): the sub-layer adds its result to x itself.
template <class Sublayer>
void add_and_norm(const StackCall& stack, const Norm& norm, float* x, int64_t rows, Sublayer sublayer) {
    const int64_t d = stack.d_model;
    const float* input = x;
    if (stack.pre_norm) {
        auto normed = workspace<float>(3, rows * d);
        for (int64_t row = 0; row < rows; row++) normalize(norm, x + row * d, d, normed + row * d);
        input = normed;
    }
    sublayer(input, Output{x, d, NONE, true});
    if (!stack.pre_norm)
        for (int64_t row = 0; row < rows; row++) normalize(norm, x + row * d, d, x + row * d);
}

void feed_forward(const StackCall& stack, const Layer& layer, float* x, int64_t rows) {
    add_and_norm(stack, layer.feed_forward_norm, x, rows, [&](const float* input, Output out) {
        auto hidden = workspace<float>(4, rows * layer.inner.outputs);
        linear(
            layer.inner, input, rows, {hidden, layer.inner.outputs, static_cast<Activation>(stack.activation), false},
            stack.threads
        );
        linear(layer.outer, hidden, rows, out, stack.threads);
    });
}

void last_norm(const StackCall& stack, float* x, int64_t rows) {
    if (!stack.last.weight) return;
    for (int64_t row = 0; row < rows; row++)
        normalize(stack.last, x + row * stack.d_model, stack.d_model, x + row * stack.d_model);
}

float* room_for_scores(const Heads& heads, int64_t count) {
    return workspace<float>(7, heads.count * (padded(count, LANES) + LANES));
}

// Section 3.4: the token's row × √d_model, added to its position in x.
void embed(const StackCall& stack, int64_t id, float* x) {
    if (id < 0 || id >= stack.vocabulary) throw std::out_of_range("id");
    const float factor = std::sqrt(static_cast<float>(stack.d_model));
    const float* row = stack.embedding + id * stack.d_model;
    for (int64_t i = 0; i < stack.d_model; i++) x[i] = row[i] * factor + x[i];
}

// Queries and keys, which lie side by side, by the angles of `position`.
void rotate_queries_and_keys(const Heads& heads, const RotaryTables& tables, int64_t position, float* qkv) {
    for (int head = 0; tables.cosines && head < 2 * heads.count; head++, qkv += heads.d_k)
        rotate_head(qkv, tables.cosines + position * heads.d_k, tables.sines + position * heads.d_k, heads.d_k, qkv);
}

void attend_within(
    const StackCall& stack, const Layer& layer, const RotaryTables& tables, float* x, const int64_t* first,
    int64_t sentences
) {
    const int64_t rows = first[sentences], width = layer.self_qkv.outputs, values = stack.heads.values();
    add_and_norm(stack, layer.self_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = workspace<float>(4, rows * width);
        auto context = workspace<float>(5, rows * values);
        linear(layer.self_qkv, input, rows, {qkv, width, NONE, false}, stack.threads);
        for (int64_t sentence = 0; sentence < sentences; sentence++) {
            const float* keys = qkv + first[sentence] * width + stack.heads.keys();
            const int64_t length = first[sentence + 1] - first[sentence];
            float* scores = room_for_scores(stack.heads, length);
            auto seen = workspace<const float*>(8, length);
            for (int64_t i = 0; i < length; i++)
                rotate_queries_and_keys(stack.heads, tables, i, qkv + (first[sentence] + i) * width);
            for (int64_t t = 0; t < length; t++) seen[t] = keys + t * width;
            for (int64_t row = first[sentence]; row < first[sentence + 1]; row++)
                attend(stack.heads, qkv + row * width, length, seen, context + row * values, scores);
        }
        linear(layer.self_output, context, rows, out, stack.threads);
    });
}

template <class Unit>
void attend_cache(
    const StackCall& stack, int index, const RotaryTables& tables, float* x, int64_t rows, const KeyValueCache& cache
) {
    const Layer& layer = stack.layer[index];
    const int64_t keys = stack.heads.keys(), values = stack.heads.values(), width = keys + values;
    add_and_norm(stack, layer.self_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = workspace<float>(4, rows * layer.self_qkv.outputs);
        auto context = workspace<float>(5, rows * values);
        linear(layer.self_qkv, input, rows, {qkv, layer.self_qkv.outputs, NONE, false}, stack.threads);
        for (int64_t row = 0; row < rows; row++)
            rotate_queries_and_keys(stack.heads, tables, cache.positions - 1, qkv + row * layer.self_qkv.outputs);
        Unit* newest = static_cast<Unit*>(cache.keys_values[cache.positions - 1]);
        for (int64_t row = 0; row < rows; row++)
            put(qkv + row * layer.self_qkv.outputs + keys, width, newest + (index * rows + row) * width);
        float* scores = room_for_scores(stack.heads, cache.positions);
        auto seen = workspace<const Unit*>(8, cache.positions);
        for (int64_t row = 0; row < rows; row++) {
            const int32_t* beam_index = cache.beam_index + row * cache.stride;
            for (int64_t t = 0; t < cache.positions; t++)
                seen[t] = static_cast<Unit*>(cache.keys_values[t]) + (index * cache.rows[t] + beam_index[t]) * width;
            const float* q = qkv + row * layer.self_qkv.outputs;
            attend(stack.heads, q, cache.positions, seen, context + row * values, scores);
        }
        linear(layer.self_output, context, rows, out, stack.threads);
    });
}

template <class Unit>
void attend_memory(const StackCall& stack, int index, float* x, int64_t rows, const KeyValueCache& cache) {
    const Layer& layer = stack.layer[index];
    const int64_t keys = stack.heads.keys(), values = stack.heads.values();
    add_and_norm(stack, layer.cross_norm, x, rows, [&](const float* input, Output out) {
        auto q = workspace<float>(4, rows * keys);
        auto context = workspace<float>(5, rows * values);
        linear(layer.query, input, rows, {q, keys, NONE, false}, stack.threads);
        for (int64_t row = 0; row < rows; row++) {
            const int64_t sentence = row / cache.rows_per_sentence, length = cache.length[sentence];
            auto memory = static_cast<const Unit*>(cache.memory[index]) + cache.first[sentence] * (keys + values);
            auto seen = workspace<const Unit*>(8, length);
            for (int64_t t = 0; t < length; t++) seen[t] = memory + t * (keys + values);
            attend(
                stack.heads, q + row * keys, length, seen, context + row * values, room_for_scores(stack.heads, length)
            );
        }
        linear(layer.cross_output, context, rows, out, stack.threads);
    });
}

template <class Unit>
void decoder_layer(
    const StackCall& stack, int index, const RotaryTables& tables, float* x, int64_t rows, const KeyValueCache& cache
) {
    attend_cache<Unit>(stack, index, tables, x, rows, cache);
    attend_memory<Unit>(stack, index, x, rows, cache);
    feed_forward(stack, stack.layer[index], x, rows);
}

}  // namespace
