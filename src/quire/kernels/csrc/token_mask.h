// Bans tokens: a row of logits allows only the tokens whose bits are set in its mask.
#pragma once

#include <cstdint>

extern "C" {

#define QUIRE_EXPORT __attribute__((visibility("default")))

// Sets logits without a bit in the mask to minus infinity, in place.
//
// Rows are `stride` elements apart. Mask i, [words] of 32 bits with the lowest first, is for row places[i].
QUIRE_EXPORT void quire_ban_float32(void* rows, int64_t stride, int64_t size, const int64_t* places, int64_t num_masks,
                                    const uint32_t* masks, int64_t words, int32_t num_threads);
QUIRE_EXPORT void quire_ban_bfloat16(void* rows, int64_t stride, int64_t size, const int64_t* places, int64_t num_masks,
                                     const uint32_t* masks, int64_t words, int32_t num_threads);
}
