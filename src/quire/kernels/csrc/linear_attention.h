// C interface of layers whose state is a matrix per head, between their linear projections: the gated delta rule (Yang,
// Kautz and Hatamizadeh 2024, arXiv 2412.06464) and Mamba-2 (Dao and Gu 2024, arXiv 2405.21060).
//
// Queries, keys and values pass a causal convolution over the last four tokens and SiLU. Then each value head updates its
// matrix S, [k_dim][v_dim], token by token, with step = softplus(a + dt_bias) and decay = exp(rate step):
//     gated delta: S = decay S, S += k (sigmoid(b) (v - k S))^T, o = q S / sqrt(k_dim), where q and k have length 1
//     Mamba-2:     S = decay S + k (step v)^T, o = q S + skip v, where q, k and v are C, B and x of the paper
// The gated delta rule's output is o / rms(o) * norm * silu(z). Mamba-2's is y / rms(y) * norm with y = o * silu(z), where
// the mean is over all heads of a key head. All is float32 inside (y is stored in between), and a token's result has the
// same bits however the tokens before it were divided into runs.
//
// A block's state is float32: the convolution's last three inputs, [3][channels], channels being those of all queries,
// keys and values in turn; then S of each value head, in tiles of 32 columns: [k_dim][32] each.
#pragma once

#include <cstdint>

#include "states.h"

extern "C" {

struct QuireLinearAttention {
    const QuireStatePlan* plan;
    float* states;  // of block 0
    // Of the first key head in row 0; value heads are `num_v_heads / num_k_heads` per key head.
    const void *q, *k, *v, *z;
    const void *b, *a;       // Mamba-2 has no b
    void* out;               // [num_rows][num_v_heads][v_dim], dense
    const float* conv;       // [4][channels], the last is the token's own
    const float* conv_bias;  // [channels], or null
    const float *rate, *dt_bias, *skip;  // [num_v_heads]; rates are negative; only Mamba-2 has skip
    const float* norm;  // [v_dim]; of Mamba-2: [num_v_heads][v_dim], or null, and the output is y
    int64_t row_stride, key_step, value_step, z_step;  // elements between rows and between key heads, of q, k, v and z
    int64_t gate_stride, gate_step;                    // of b and a
    int64_t num_k_heads, num_v_heads, k_dim, v_dim;    // multiples of 16 and of 32
    float eps;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT void quire_gated_delta_float32(const QuireLinearAttention*);
QUIRE_EXPORT void quire_gated_delta_bfloat16(const QuireLinearAttention*);
QUIRE_EXPORT void quire_mamba2_float32(const QuireLinearAttention*);
QUIRE_EXPORT void quire_mamba2_bfloat16(const QuireLinearAttention*);
}
