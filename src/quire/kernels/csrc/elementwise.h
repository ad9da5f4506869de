// C interface of a decoder's operations between products: norms with the residual sum, rotary positions, the best token
// of each row of logits, sums, activations and conversions. Each takes one pass over memory, torch often several, with
// caches that a product has evicted.
//
// Rounds where torch rounds, so that bfloat16 results are the same.
#pragma once

#include <cstdint>

extern "C" {

#define QUIRE_EXPORT __attribute__((visibility("default")))

// out = y / rms(y) * (weight + offset), after y += x if x is given. All are [num_rows][size], dense.
struct QuireNorm {
    const void* x;  // or null
    void* y;
    const void* weight;
    void* out;
    int64_t num_rows, size;
    float eps, offset;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_norm_float32(const QuireNorm*);
QUIRE_EXPORT void quire_norm_bfloat16(const QuireNorm*);

// out = x / rms(x) of each head, [num_tokens][num_heads][head_dim], dense; tokens of x are `stride` elements apart.
struct QuireNormHeads {
    const void* x;
    void* out;
    int64_t num_tokens, stride, num_heads, head_dim;
    float eps;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_norm_heads_float32(const QuireNormHeads*);
QUIRE_EXPORT void quire_norm_heads_bfloat16(const QuireNormHeads*);

// out = (y - mean(y)) / deviation(y) * weight + bias, after y += x if x is given. Otherwise as `QuireNorm`.
struct QuireLayerNorm {
    const void* x;  // or null
    void* y;
    const void *weight, *bias;  // or null
    void* out;
    int64_t num_rows, size;
    float eps;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_layer_norm_float32(const QuireLayerNorm*);
QUIRE_EXPORT void quire_layer_norm_bfloat16(const QuireLayerNorm*);

// Rotates the pairs (i, i + rotary_dim / 2), or (2i, 2i + 1) if interleaved, of query and key heads in place. A token's
// heads are contiguous, queries first; tokens are `stride` elements apart.
struct QuireRotate {
    void* heads;
    int64_t num_tokens, stride, num_query_heads, num_key_heads, head_dim, rotary_dim;
    const void *cosines, *sines;            // [num_tokens][rotary_dim]; the first half of the sines is negated
    const void *query_weight, *key_weight;  // [head_dim], weights, less `offset`, of norms before the rotation, or null
    const void* query_scale;                // [num_tokens], factors on rotated queries, or null
    float eps, offset;
    int32_t is_interleaved, norms_all_heads, num_threads;  // one norm over all query or key heads: weights of all
    int32_t query_step;  // heads from a query to the next, with others between that stay, or 0 for 1
};
QUIRE_EXPORT void quire_rotate_float32(const QuireRotate*);
QUIRE_EXPORT void quire_rotate_bfloat16(const QuireRotate*);

// Norms latents, the first features of keys, and rotates the last `rotary_dim` features of keys and query heads, in place.
struct QuireLatents {
    void* queries;  // [num_tokens][num_heads][query_dim], dense
    void* keys;     // [num_tokens][latent_dim + rotary_dim], dense
    int64_t num_tokens, num_heads, query_dim, latent_dim, rotary_dim;
    const void* weight;            // [latent_dim], of the norm
    const void *cosines, *sines;  // as in `QuireRotate`
    float eps;
    int32_t is_interleaved, num_threads;
};
QUIRE_EXPORT void quire_latents_float32(const QuireLatents*);
QUIRE_EXPORT void quire_latents_bfloat16(const QuireLatents*);

// Finds the largest value of each row and its first index. A row with NaN gives NaN and index 0.
QUIRE_EXPORT void quire_best_float32(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                                     int64_t* places, int32_t num_threads);
QUIRE_EXPORT void quire_best_bfloat16(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                                      int64_t* places, int32_t num_threads);

// out = x + y, x * y, x * factor, factor * tanh(x / factor), or another function of x, computed in float32. `out` may be
// an input.
struct QuireMap {
    const void *x, *y;  // y of sums and products only
    void* out;
    int64_t size;
    float factor;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_add_float32(const QuireMap*);
QUIRE_EXPORT void quire_add_bfloat16(const QuireMap*);
QUIRE_EXPORT void quire_multiply_float32(const QuireMap*);
QUIRE_EXPORT void quire_multiply_bfloat16(const QuireMap*);
QUIRE_EXPORT void quire_scale_float32(const QuireMap*);
QUIRE_EXPORT void quire_scale_bfloat16(const QuireMap*);
QUIRE_EXPORT void quire_cap_float32(const QuireMap*);
QUIRE_EXPORT void quire_cap_bfloat16(const QuireMap*);
QUIRE_EXPORT void quire_silu_float32(const QuireMap*);
QUIRE_EXPORT void quire_silu_bfloat16(const QuireMap*);
QUIRE_EXPORT void quire_relu_float32(const QuireMap*);
QUIRE_EXPORT void quire_relu_bfloat16(const QuireMap*);
QUIRE_EXPORT void quire_gelu_float32(const QuireMap*);
QUIRE_EXPORT void quire_gelu_bfloat16(const QuireMap*);
QUIRE_EXPORT void quire_gelu_tanh_float32(const QuireMap*);
QUIRE_EXPORT void quire_gelu_tanh_bfloat16(const QuireMap*);

// out = silu(gate) * up for rows of gate and up, [num_rows][2][size] -> [num_rows][size].
struct QuireGate {
    const void* x;
    void* out;
    int64_t num_rows, size;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_gate_float32(const QuireGate*);
QUIRE_EXPORT void quire_gate_bfloat16(const QuireGate*);

// out = x * sigmoid(gates) of heads, [num_tokens][num_heads][head_dim]; only gates may not be dense.
struct QuireGateHeads {
    const void *x, *gates;
    void* out;
    int64_t num_tokens, num_heads, head_dim, token_stride, head_stride;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_gate_heads_float32(const QuireGateHeads*);
QUIRE_EXPORT void quire_gate_heads_bfloat16(const QuireGateHeads*);

// out = x in another type, through float32; `to` is not float64. They do not overlap.
enum { QUIRE_FLOAT32, QUIRE_BFLOAT16, QUIRE_FLOAT16, QUIRE_FLOAT64 };
struct QuireConvert {
    const void* x;
    void* out;
    int64_t size;
    int32_t from, to, num_threads;
};
QUIRE_EXPORT void quire_convert(const QuireConvert*);

// Whether no element is NaN or infinite.
QUIRE_EXPORT int32_t quire_is_finite(const void* x, int64_t size, int32_t type, int32_t num_threads);
}
