// What Python calls. The caller owns all memory that outlives a call.
#include "candidates.h"
#include "decoding.h"
#include "embedding.h"
#include "glibc.h"
#include "loss.h"
#include "products.h"
#include "stack_backward.h"
#include "update.h"
#include <new>
#include <stdexcept>

namespace {

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

// What the bits of a result depend on: a number, raised when sums are added in another order or random numbers are
// drawn in another way; the compiler's way of joining products and sums; the instructions.
const char* arithmetic() {
#if defined(__clang__)
#define ARITHMETIC "2, Clang"
#else
#define ARITHMETIC "2"
#endif
#if HAS_AMX
    if (amx_allowed()) return ARITHMETIC ", 512 bits, matrices";
#endif
#if HAS_BFLOAT16 && !HAS_AMX
    return ARITHMETIC ", 512 bits, bfloat16";
#elif LANES == 16
    return ARITHMETIC ", 512 bits";
#elif defined(__FMA__) || defined(__aarch64__)
    return ARITHMETIC ", fused";
#else
    return ARITHMETIC;
#endif
}

// The digest of the sources that this was built from, as library.py computes it.
const char* sources() { return SOURCES_DIGEST; }

// Whether the system lets this process use all the registers that the kernels were compiled for.
int32_t has_permission() {
#if HAS_AMX
    return amx_allowed();
#else
    return 1;
#endif
}

// sizeof of a struct that abi.py mirrors, by its name, or −1.
int64_t struct_size(const char* name) {
    static const struct {
        const char* name;
        int64_t bytes;
    } sizes[] = {
#define SIZE(type) {#type, sizeof(type)}
        SIZE(Linear), SIZE(Norm), SIZE(Layer), SIZE(Stack), SIZE(RotaryTables), SIZE(KeyValueCache), SIZE(Operand),
        SIZE(Product), SIZE(Sequences), SIZE(Attention), SIZE(Embedding), SIZE(Rotation), SIZE(Parameter),
        SIZE(TrainedLayer), SIZE(Mask), SIZE(TrainedStack), SIZE(ParameterState), SIZE(Update),
        SIZE(ProjectedLoss), SIZE(Extension),
#undef SIZE
    };
    for (const auto& each : sizes)
        if (!strcmp(each.name, name)) return each.bytes;
    return -1;
}

int32_t panel_size() { return PANEL; }
int32_t has_int8() { return HAS_INT8; }

int32_t pack_weights(const float* weights, int64_t outputs, int64_t inputs, void* packed, float* scales) {
    return guarded([&] { pack(weights, outputs, inputs, packed, scales); });
}

int32_t apply_linear(const Linear* by, const float* x, int64_t rows, float* y, int64_t threads) {
    return guarded([&] { linear(*by, x, rows, {y, by->outputs, NONE, false}, threads); });
}

// x: [tokens, d_model], sentence behind sentence, holds the positions; first: where each begins, and the last one ends.
int32_t encode(
    const Stack* stack, const RotaryTables* tables, const int64_t* ids, float* x, const int64_t* first,
    int64_t sentences, int64_t threads
) {
    return guarded([&] {
        const StackCall by{*stack, threads};
        for (int64_t token = 0; token < first[sentences]; token++)
            embed(by, ids[token], x + token * stack->d_model);
        for (int index = 0; index < stack->layers; index++) {
            attend_within(by, stack->layer[index], *tables, x, first, sentences);
            feed_forward(by, stack->layer[index], x, first[sentences]);
        }
        last_norm(by, x, first[sentences]);
    });
}

// ids: the newest token of each row, at `position` [d_model] (null: nothing is added); logits: [rows, output.outputs].
int32_t decode(
    const Stack* stack, const RotaryTables* tables, const Linear* output, const int64_t* ids, const float* position,
    int64_t rows, const KeyValueCache* cache, float* logits, int64_t threads
) {
    return guarded([&] {
        const StackCall by{*stack, threads};
        const int64_t d = stack->d_model;
        float* x = workspace<float>(6, rows * d);
        for (int64_t row = 0; row < rows; row++) {
            if (position) memcpy(x + row * d, position, d * sizeof(float));
            else memset(x + row * d, 0, d * sizeof(float));
            embed(by, ids[row], x + row * d);
            cache->beam_index[row * cache->stride + cache->positions - 1] = static_cast<int32_t>(row);
        }
        for (int index = 0; index < stack->layers; index++) {
            if (cache->bfloat16) decoder_layer<uint16_t>(by, index, *tables, x, rows, *cache);
            else decoder_layer<float>(by, index, *tables, x, rows, *cache);
        }
        last_norm(by, x, rows);
        linear(*output, x, rows, {logits, output->outputs, NONE, false}, threads);
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

int32_t has_bfloat16() {
#if HAS_AMX
    return amx_allowed();
#else
    return HAS_BFLOAT16;
#endif
}

// What the forward pass saves for the backward pass.
int32_t stack_bytes(const TrainedStack* stack, int64_t* bytes) {
    return guarded([&] {
        const CompactStack s(*stack);
        *bytes = s.bfloat16 ? SavedStack<uint16_t>(s).bytes : SavedStack<float>(s).bytes;
    });
}

int32_t train_stack(const TrainedStack* stack, int32_t backward) {
    return guarded([&] {
        const CompactStack s(*stack);
#if HAS_BFLOAT16
        if (s.bfloat16) return backward ? stack_backward<uint16_t>(s) : stack_forward<uint16_t>(s);
#endif
        return backward ? stack_backward<float>(s) : stack_forward<float>(s);
    });
}

int32_t measure_gradients(Update* update) {
    return guarded([&] { measure(*update); });
}

int32_t update_all(const Update* update) {
    return guarded([&] { update_weights(*update); });
}

int32_t project_and_lose(ProjectedLoss* loss) {
    return guarded([&] {
#if HAS_BFLOAT16
        if (loss->bfloat16) return projected_loss<uint16_t>(*loss);
#endif
        projected_loss<float>(*loss);
    });
}

int32_t embed_rows(const Embedding* embedding, int32_t backward) {
    return guarded([&] { backward ? embedding_gradients(*embedding) : embed_tokens(*embedding); });
}

int32_t rotate_pairs(const Rotation* rotation) {
    return guarded([&] {
        if (rotation->bfloat16) rotate<uint16_t>(*rotation);
        else rotate<float>(*rotation);
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

int32_t extend_hypotheses(Extension* extension) {
    return guarded([&] { extend(*extension); });
}

}  // extern "C"
