// Forward and backward pass of a stack in training, exported.
#include "api.h"
#include "stack.h"

// Size of the activations that the forward pass saves for the backward pass.
API int32_t stack_bytes(const TrainingStack* stack, int64_t* bytes) {
    return guarded([&] {
        const UnpaddedStack s(*stack);
        *bytes = s.bfloat16 ? SavedStack<uint16_t>(s).bytes : SavedStack<float>(s).bytes;
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
