// Inference, exported: packed weights, full sequences, and steps of decoding.
#include "api.h"
#include "beam_steps.h"

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
        decode_tokens({*stack, threads, *rotary}, *output, {ids, position, stride, rows}, *cache, logits);
    });
}

// Steps of a beam search, until hypotheses end or logits are not finite. position: the encoding of the first step's
// tokens, those of later ones behind it; or null.
API int32_t search_beams(
    const PackedStack* stack, const RotaryTables* rotary, const Linear* output, const float* position,
    const DecoderCache* cache, BeamSteps* steps, int64_t threads
) {
    return guarded([&] { take_steps({*stack, threads, *rotary}, *output, position, *cache, *steps); });
}
