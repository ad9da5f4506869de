#include "token_mask.h"

namespace {

// Treats logits as integers, without arithmetic.
template <class Bits, Bits infinity>
void ban(void* rows, int64_t stride, int64_t size, const int64_t* places, int64_t num_masks, const uint32_t* masks,
         int64_t words, int32_t num_threads) {
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
    for (int64_t i = 0; i < num_masks; ++i) {
        Bits* row = static_cast<Bits*>(rows) + places[i] * stride;
        const uint32_t* mask = masks + i * words;
        const int64_t whole = size / 32;
        for (int64_t word = 0; word < whole; ++word) {
            const uint32_t allowed = mask[word];
            if (allowed == 0xFFFFFFFFu) continue;
            Bits* part = row + word * 32;
            for (int bit = 0; bit < 32; ++bit) {  // without a branch, so that it is vectorized
                const Bits keep = static_cast<Bits>(0) - static_cast<Bits>(allowed >> bit & 1);
                part[bit] = static_cast<Bits>((part[bit] & keep) | (infinity & static_cast<Bits>(~keep)));
            }
        }
        for (int64_t at = whole * 32; at < size; ++at)
            if (!(mask[at / 32] >> at % 32 & 1)) row[at] = infinity;
    }
}

}  // namespace

void quire_ban_float32(void* rows, int64_t stride, int64_t size, const int64_t* places, int64_t num_masks,
                       const uint32_t* masks, int64_t words, int32_t num_threads) {
    ban<uint32_t, 0xFF800000u>(rows, stride, size, places, num_masks, masks, words, num_threads);
}
void quire_ban_bfloat16(void* rows, int64_t stride, int64_t size, const int64_t* places, int64_t num_masks,
                        const uint32_t* masks, int64_t words, int32_t num_threads) {
    ban<uint16_t, 0xFF80u>(rows, stride, size, places, num_masks, masks, words, num_threads);
}
