// Forward and backward pass of a stack in training, exported.
#include "api.h"
#include "stack.h"
#include <algorithm>

// Size of the activations that the forward pass saves for the backward pass.
API int32_t stack_bytes(const TrainingStack* stack, int64_t* bytes) {
    return guarded([&] {
        const UnpaddedStack s(*stack);
        *bytes = s.bfloat16 ? SavedStack<uint16_t>(s).bytes : SavedStack<float>(s).bytes;
    });
}

static void fill_rows(const SentenceMask& m, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) {
        const int64_t* keys = m.key_sentences + row * m.keys;
        int64_t end = m.keys;  // behind it is padding
        while (end > 0 && !keys[end - 1]) end--;
        for (int64_t query = 0; query < m.queries; query++) {
            uint8_t* visible = m.visible + (row * m.queries + query) * m.keys;
            const int64_t number = m.query_sentences[row * m.queries + query];
            const int64_t count = m.causal ? std::min(query + 1, end) : end;
            for (int64_t key = 0; key < count; key++) visible[key] = keys[key] == number;
            std::fill(visible + count, visible + m.keys, 0);
        }
    }
}

API int32_t fill_mask(const SentenceMask* mask) {
    return guarded([&] {
        const auto work = [&](int64_t from, int64_t to) { fill_rows(*mask, from, to); };
        const int64_t size = chunk_size(mask->threads, mask->batch, mask->queries * mask->keys);
        parallel_for(mask->threads, mask->batch, size, work);
    });
}

API int32_t train_stack(const TrainingStack* stack, int32_t backward) {
    return guarded([&] {
        const UnpaddedStack s(*stack);
#if HAS_BFLOAT16
        if (s.bfloat16) return backward ? stack_backward<uint16_t>(s) : stack_forward<uint16_t>(s);
#endif
        return backward ? stack_backward<float>(s) : stack_forward<float>(s);
    });
}
