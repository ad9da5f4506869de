// C interface of linear layers with quantized weights: plain pointers and numbers, independent of torch's version.
//
// Activations are quantized to 8 bits with one scale per row, and multiplied by weights of 8 or 4 bits as integers, so a
// row's result depends on that row only. `models/linear/quantized_weight.py` fills the structures, field by field in this
// order.
#pragma once

#include <cstdint>

extern "C" {

struct QuireQuantizedWeight {
    const uint8_t* packed;  // panels of 32 output features, see quantized_linear.cpp
    const float* scales;    // 8 bits: [panels * 32]; 4 bits: stored between the weights
    int64_t depth, columns;
    int64_t bits;  // 8 or 4
};

// The function of x W^T + b.
enum QuireForm { QUIRE_PLAIN, QUIRE_SILU, QUIRE_GATED };

struct QuireQuantize {
    const void* weight;  // [columns, depth], rows are `stride` elements apart
    int64_t stride, depth, columns;
    uint8_t* packed;
    float* scales;
    int32_t bits;
    int32_t num_threads;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT int64_t quire_quantized_bytes(int64_t columns, int64_t depth, int32_t bits);  // of `packed`
QUIRE_EXPORT void quire_quantize_float32(const QuireQuantize*);
QUIRE_EXPORT void quire_quantize_bfloat16(const QuireQuantize*);

// out = x W^T + b, silu(x W^T + b), or silu(x W^T + b) times the product of `up` with x.
struct QuireQuantizedLinear {
    const QuireQuantizedWeight* weight;
    const void* bias;  // or null
    const QuireQuantizedWeight* up;
    const void* up_bias;
    const void* x;  // [num_rows, depth], rows are x_stride elements apart
    int64_t x_stride, num_rows;
    void* out;  // [num_rows, columns], dense; same type as x and the biases
    int32_t form, num_threads;
    const float *addend, *up_addend;  // of adapters, as `out`, or null: added before it is rounded
};
QUIRE_EXPORT void quire_quantized_linear_float32(const QuireQuantizedLinear*);
QUIRE_EXPORT void quire_quantized_linear_bfloat16(const QuireQuantizedLinear*);
// Several calls at once, with weights of one shape, for experts.cpp. Each has a row or more; their `num_threads` are
// ignored.
void quire_quantized_linears_float32(const QuireQuantizedLinear* calls, int64_t num_calls, int64_t num_threads);
void quire_quantized_linears_bfloat16(const QuireQuantizedLinear* calls, int64_t num_calls, int64_t num_threads);
}
