// Inference, exported: packed weights, full sequences, and steps of decoding.
#include "api.h"
#include "decoding.h"

// With `parts`, in parts of bfloat16 (split.h), if this variant multiplies them.
API int32_t
pack_weights(const float* weights, int64_t outputs, int64_t inputs, void* packed, float* scales, int32_t parts) {
    return guarded([&] {
#if HAS_AMX
        if (parts) return pack_parts(weights, outputs, inputs, static_cast<Split*>(packed));
#else
        if (parts) throw std::out_of_range("parts");
#endif
        if (scales) pack_quantized(weights, outputs, inputs, static_cast<uint8_t*>(packed), scales);
        else pack(weights, outputs, inputs, static_cast<float*>(packed));
    });
}

API int32_t apply_linear(const Linear* weights, const float* x, int64_t rows, float* y, int64_t threads) {
    return guarded([&] { linear(*weights, x, rows, {y, weights->outputs, NONE, false}, threads); });
}

// x: [tokens, d_model], unpadded; with `ids` it contains positional encodings, to which the embeddings are added.
// first: index of the first token of each sequence, and the end of the last. With a cache the sequences are prompts of
// a decoder-only model, whose keys and values are stored in its memory; else attention is bidirectional.
API int32_t encode(
    const PackedStack* stack, const RotaryTables* rotary, const int64_t* ids, float* x, const int64_t* first,
    int64_t sequences, const DecoderCache* cache, int64_t threads
) {
    return guarded([&] {
        const StackCall call{*stack, threads, *rotary};
        for (int64_t token = 0; ids && token < first[sequences]; token++)
            embed(call, ids[token], x + token * stack->d_model);
        run_sequences(call, {first, sequences}, cache, x);
    });
}

// ids: the newest token of each row. position: its positional encoding, with row stride `stride` (0: one for all), or
// null. logits: [rows, output.outputs].
API int32_t decode(
    const PackedStack* stack, const RotaryTables* rotary, const Linear* output, const int64_t* ids,
    const float* position, int64_t stride, int64_t rows, const DecoderCache* cache, float* logits, int64_t threads
) {
    return guarded([&] {
        const StackCall call{*stack, threads, *rotary};
        const int64_t d = stack->d_model;
        float* x = workspace<float>(NEWEST, rows * d);
        for (int64_t row = 0; row < rows; row++) {
            if (position) memcpy(x + row * d, position + row * stride, d * sizeof(float));
            else memset(x + row * d, 0, d * sizeof(float));
            embed(call, ids[row], x + row * d);
            cache->beam_index[row * cache->stride + cache->steps - 1] = static_cast<int32_t>(row);
        }
        if (cache->bfloat16) run_step<uint16_t>(call, x, rows, *cache);
        else run_step<float>(call, x, rows, *cache);
        linear(*output, x, rows, {logits, output->outputs, NONE, false}, threads);
    });
}
