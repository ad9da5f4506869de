// C interface of a decoder's operations between products: norms with the residual sum, rotary positions, and the best
// token of each row of logits. Each takes one pass over memory, torch several, with caches that a product has evicted.
//
// Rounds where torch rounds, so that bfloat16 results are the same.
#pragma once

#include <cstdint>

extern "C" {

#define QUIRE_EXPORT __attribute__((visibility("default")))

// out = y / rms(y) * weight, after y += x if x is given. All are [num_rows][size], dense.
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

// Rotates the pairs (i, i + head_dim / 2) of query and key heads in place. A token's heads are contiguous, queries first;
// tokens are `stride` elements apart.
struct QuireRotate {
    void* heads;
    int64_t num_tokens, stride, num_query_heads, num_key_heads, head_dim;
    const void *cosines, *sines;            // [num_tokens][head_dim]; the first half of the sines is negated
    const void *query_weight, *key_weight;  // [head_dim], weights of norms before the rotation, or null
    float eps;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_rotate_float32(const QuireRotate*);
QUIRE_EXPORT void quire_rotate_bfloat16(const QuireRotate*);

// Finds the largest value of each row and its first index. A row with NaN gives NaN and index 0.
QUIRE_EXPORT void quire_best_float32(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                                     int64_t* places, int32_t num_threads);
QUIRE_EXPORT void quire_best_bfloat16(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                                      int64_t* places, int32_t num_threads);
}
