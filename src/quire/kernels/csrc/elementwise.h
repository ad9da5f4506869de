// The C interface of what a decoder does between its products: norms with the residual sum, rotary positions, and the
// best token of each row of logits. Each is one pass where torch takes several, each of which begins cold after a
// product has passed all weights through the caches.
//
// Numbers are rounded where torch rounds them, so that bfloat16 comes out the same.
#pragma once

#include <cstdint>

extern "C" {

#define QUIRE_EXPORT __attribute__((visibility("default")))

// out = y / rms(y) * weight, with y += x first where there is an x. All are [num_rows][size], dense.
struct QuireNorm {
    const void* x;  // or null
    void* y;
    const void* weight;
    void* out;
    int64_t num_rows, size;
    float eps;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_norm_float32(const QuireNorm*);
QUIRE_EXPORT void quire_norm_bfloat16(const QuireNorm*);

// Turns the pairs (i, i + head_dim / 2) of query and key heads in place. Of a token, they stand one after the other,
// queries first; tokens are `stride` elements apart.
struct QuireRotate {
    void* heads;
    int64_t num_tokens, stride, num_query_heads, num_key_heads, head_dim;
    const void *cosines, *sines;            // [num_tokens][head_dim], the first half of the sines negative
    const void *query_weight, *key_weight;  // [head_dim], of the norms that each head goes through first; or null
    float eps;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_rotate_float32(const QuireRotate*);
QUIRE_EXPORT void quire_rotate_bfloat16(const QuireRotate*);

// The largest value of each row and the first place where it stands. NaN, at place 0, where the row has any.
QUIRE_EXPORT void quire_best_float32(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                                     int64_t* places, int32_t num_threads);
QUIRE_EXPORT void quire_best_bfloat16(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                                      int64_t* places, int32_t num_threads);
}
