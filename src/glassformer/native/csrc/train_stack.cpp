// The forward and the backward pass of a stack in training.
#include "api.h"
#include "stack_backward.h"

// What the forward pass saves for the backward pass.
API int32_t stack_bytes(const TrainedStack* stack, int64_t* bytes) {
    return guarded([&] {
        const CompactStack s(*stack);
        *bytes = s.bfloat16 ? SavedStack<uint16_t>(s).bytes : SavedStack<float>(s).bytes;
    });
}

API int32_t train_stack(const TrainedStack* stack, int32_t backward) {
    return guarded([&] {
        const CompactStack s(*stack);
#if HAS_BFLOAT16
        if (s.bfloat16) return backward ? stack_backward<uint16_t>(s) : stack_forward<uint16_t>(s);
#endif
        return backward ? stack_backward<float>(s) : stack_forward<float>(s);
    });
}
