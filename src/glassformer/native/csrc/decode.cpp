// Stacks in use: packed weights, whole sequences, and steps of decoding.
#include "api.h"
#include "decoding.h"

API int32_t pack_weights(const float* weights, int64_t outputs, int64_t inputs, void* packed, float* scales) {
    return guarded([&] {
        if (scales) pack_quantized(weights, outputs, inputs, static_cast<uint8_t*>(packed), scales);
        else pack(weights, outputs, inputs, static_cast<float*>(packed));
    });
}

API int32_t apply_linear(const Linear* by, const float* x, int64_t rows, float* y, int64_t threads) {
    return guarded([&] { linear(*by, x, rows, {y, by->outputs, NONE, false}, threads); });
}

// x: [tokens, d_model], sequence behind sequence. With `ids` x holds the positions, to which the embeddings are added.
// first: where each sequence begins, and the last one ends. With a cache the sequences are prompts of a decoder-only
// model, whose keys and values go into its memory; else every token sees its whole sequence.
API int32_t encode(
    const PackedStack* stack, const RotaryTables* rotary, const int64_t* ids, float* x, const int64_t* first,
    int64_t sequences, const DecoderCache* cache, int64_t threads
) {
    return guarded([&] {
        const StackCall by{*stack, threads, *rotary};
        for (int64_t token = 0; ids && token < first[sequences]; token++)
            embed(by, ids[token], x + token * stack->d_model);
        run_sequences(by, {first, sequences}, cache, x);
    });
}

// ids: the newest token of each row. position: its positional encoding, `stride` apart for each row (0: the same for
// all), or null. logits: [rows, output.outputs].
API int32_t decode(
    const PackedStack* stack, const RotaryTables* rotary, const Linear* output, const int64_t* ids,
    const float* position, int64_t stride, int64_t rows, const DecoderCache* cache, float* logits, int64_t threads
) {
    return guarded([&] {
        const StackCall by{*stack, threads, *rotary};
        const int64_t d = stack->d_model;
        float* x = workspace<float>(NEWEST, rows * d);
        for (int64_t row = 0; row < rows; row++) {
            if (position) memcpy(x + row * d, position + row * stride, d * sizeof(float));
            else memset(x + row * d, 0, d * sizeof(float));
            embed(by, ids[row], x + row * d);
            cache->beam_index[row * cache->stride + cache->steps - 1] = static_cast<int32_t>(row);
        }
        if (cache->bfloat16) run_step<uint16_t>(by, x, rows, *cache);
        else run_step<float>(by, x, rows, *cache);
        linear(*output, x, rows, {logits, output->outputs, NONE, false}, threads);
    });
}
