// Embedding and output loss in training, exported.
#include "api.h"
#include "embedding.h"
#include "loss.h"

API int32_t embed_rows(Embedding* embedding, int32_t backward) {
    return guarded([&] { backward ? embedding_gradients(*embedding) : embed_tokens(*embedding); });
}

API int32_t projected_cross_entropy(ProjectedLoss* loss) {
    return guarded([&] {
#if HAS_BFLOAT16
        if (loss->bfloat16) return projected_loss<uint16_t>(*loss);
#endif
        projected_loss<float>(*loss);
    });
}
