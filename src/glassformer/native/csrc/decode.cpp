// Inference of stacks step by step: the newest token of each hypothesis with a cache. Decoder-only models and decoders
// with cross-attention share this code.
#include "packed_stack.h"

namespace {

// The newest token of each hypothesis attends to its prompt (decoder-only), to the steps before it, and to itself.
template <class T>
void attend_cache(const StackCall& stack, int index, float* x, int64_t rows, const DecoderCache& cache, bool prompts) {
    const Layer& layer = stack.layers[index];
    const Heads& heads = stack.heads;
    const int64_t width = heads.k_width() + heads.v_width(), stride = layer.query.outputs;
    add_and_norm(stack, layer.self_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = workspace<float>(PROJECTED, rows * stride);
        auto context = workspace<float>(HEAD_OUTPUTS, rows * heads.context_width());
        linear(layer.query, input, rows, {qkv, stride, NONE, false}, stack.threads);
        T* newest = static_cast<T*>(cache.keys_values[cache.steps - 1]) + index * rows * width;
        int64_t longest = 0;
        for (int64_t row = 0; row < rows; row++) {
            const int64_t before = prompts ? cache.shared + cache.length[row / cache.rows_per_sentence] : 0;
            rotate_queries_and_keys(stack, before + cache.steps - 1, qkv + row * stride);
            put(qkv + row * stride + heads.q_width(), width, newest + row * width);
            longest = std::max(longest, before + cache.steps);
        }
        auto memory = prompts ? static_cast<const T*>(cache.memory[index]) : nullptr;
        attend_rows<T>(stack, rows, longest, qkv, stride, context, [&](int64_t row, const T** to) {
            const T** const begin = to;
            const int64_t sentence = row / cache.rows_per_sentence;
            for (int64_t t = 0; prompts && t < cache.shared; t++) *to++ = memory + t * width;
            for (int64_t t = 0; prompts && t < cache.length[sentence]; t++)
                *to++ = memory + (cache.shared + cache.first[sentence] + t) * width;
            const int32_t* beam_index = cache.beam_index + row * cache.stride;
            for (int64_t t = 0; t < cache.steps; t++)
                *to++ = static_cast<T*>(cache.keys_values[t]) + (index * cache.rows[t] + beam_index[t]) * width;
            return to - begin;
        });
        linear(layer.output, context, rows, out, stack.threads);
    });
}

template <class T>
void attend_memory(const StackCall& stack, int index, float* x, int64_t rows, const DecoderCache& cache) {
    const Layer& layer = stack.layers[index];
    const Heads& heads = stack.heads;
    const int64_t width = heads.k_width() + heads.v_width();
    add_and_norm(stack, layer.cross_norm, x, rows, [&](const float* input, Output out) {
        auto q = workspace<float>(PROJECTED, rows * heads.q_width());
        auto context = workspace<float>(HEAD_OUTPUTS, rows * heads.context_width());
        linear(layer.cross_query, input, rows, {q, heads.q_width(), NONE, false}, stack.threads);
        int64_t longest = 0;
        for (int64_t row = 0; row < rows; row += cache.rows_per_sentence)
            longest = std::max(longest, cache.length[row / cache.rows_per_sentence]);
        auto memory = static_cast<const T*>(cache.memory[index]);
        attend_rows<T>(stack, rows, longest, q, heads.q_width(), context, [&](int64_t row, const T** to) {
            const int64_t sentence = row / cache.rows_per_sentence, length = cache.length[sentence];
            for (int64_t t = 0; t < length; t++) to[t] = memory + (cache.first[sentence] + t) * width;
            return length;
        });
        linear(layer.cross_output, context, rows, out, stack.threads);
    });
}

template <class T>
void run_step(const StackCall& stack, float* x, int64_t rows, const DecoderCache& cache) {
    for (int index = 0; index < stack.n_layers; index++) {
        const Layer& layer = stack.layers[index];
        const bool crosses = layer.cross_query.weight.value;
        attend_cache<T>(stack, index, x, rows, cache, !crosses);
        if (crosses) attend_memory<T>(stack, index, x, rows, cache);
        feed_forward(stack, layer, x, rows);
    }
    normalize_rows(stack.final_norm, x, rows, stack.d_model, x);
}

}  // namespace

void decode_tokens(
    const StackCall& stack, const Linear& output, const NewestTokens& newest, const DecoderCache& cache
) {
    const int64_t d = stack.d_model;
    check_indices(newest.ids, newest.rows, stack.vocab_size, OUTSIDE_VOCABULARY);
    float* x = workspace<float>(NEWEST, newest.rows * d);
    for (int64_t row = 0; row < newest.rows; row++) {
        if (newest.position) memcpy(x + row * d, newest.position + row * newest.stride, d * sizeof(float));
        else memset(x + row * d, 0, d * sizeof(float));
        embed(stack, newest.ids[row], x + row * d);
        cache.beam_index[row * cache.stride + cache.steps - 1] = static_cast<int32_t>(row);
    }
    if (cache.bfloat16) run_step<uint16_t>(stack, x, newest.rows, cache);
    else run_step<float>(stack, x, newest.rows, cache);
    linear(output, x, newest.rows, {newest.logits, output.outputs, NONE, false}, stack.threads);
}

API int32_t decode(
    const PackedStack* stack, const RotaryTables* rotary, const Linear* output, const NewestTokens* newest,
    const DecoderCache* cache, int64_t threads
) {
    return guarded([&] { decode_tokens({*stack, threads, *rotary}, *output, *newest, *cache); });
}
