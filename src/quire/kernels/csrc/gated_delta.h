// C interface of a layer with the gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464), between its
// linear projections.
//
// Queries, keys and values pass a causal convolution over the last four tokens and SiLU. Then each value head updates its
// matrix S, [k_dim][v_dim], token by token, with q and k of length 1:
//     S = decay S,  S += k (beta (v - k S))^T,  o = q S / sqrt(k_dim)
//     decay = exp(rate softplus(a + dt_bias)),  beta = sigmoid(b)
// The output is o / rms(o) * norm * silu(z). All is float32 inside, and a token's result has the same bits however the
// tokens before it were divided into runs.
//
// A block's state is float32: the convolution's last three inputs, [3][channels], channels being those of all queries,
// keys and values in turn; then S of each value head, in tiles of 32 columns: [k_dim][32] each.
#pragma once

#include <cstdint>

#include "states.h"

extern "C" {

struct QuireGatedDelta {
    const QuireStatePlan* plan;
    float* states;  // of block 0
    // Of the first key head in row 0; value heads are `num_v_heads / num_k_heads` per key head.
    const void *q, *k, *v, *z;
    const void *b, *a;
    void* out;          // [num_rows][num_v_heads][v_dim], dense
    const float* conv;  // [4][channels], the last is the token's own
    const float *rate, *dt_bias;  // [num_v_heads]; rates are negative
    const float* norm;            // [v_dim]
    int64_t row_stride, key_step, value_step, z_step;  // elements between rows and between key heads, of q, k, v and z
    int64_t gate_stride, gate_step;                    // of b and a
    int64_t num_k_heads, num_v_heads, k_dim, v_dim;    // multiples of 16 and of 32
    float eps;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT void quire_gated_delta_float32(const QuireGatedDelta*);
QUIRE_EXPORT void quire_gated_delta_bfloat16(const QuireGatedDelta*);
}
