// C interface of linear layers with weights in blocks, as GGUF and 4-bit checkpoints encode them.
//
// Activations are quantized to 8 bits in blocks of 32, and multiplied by the weights' integers exactly, so a row's result
// depends on that row only. `models/linear/block_weight.py` fills the structures, field by field in this order.
#pragma once

#include <cstdint>

extern "C" {

// GGUF's numbers. The last two are ours, for other checkpoints: a float scale per `group` integers of an output feature,
// and with 4 bits a zero point.
enum QuireBlockType {
    QUIRE_Q4_0 = 2,
    QUIRE_Q4_1 = 3,
    QUIRE_Q5_0 = 6,
    QUIRE_Q5_1 = 7,
    QUIRE_Q8_0 = 8,
    QUIRE_Q4_K = 12,
    QUIRE_Q5_K = 13,
    QUIRE_Q6_K = 14,
    QUIRE_IQ4_NL = 20,
    QUIRE_IQ4_XS = 23,
    QUIRE_MXFP4 = 39,
    QUIRE_INT4 = 1004,
    QUIRE_INT8 = 1008
};

// Consecutive output features of one type.
struct QuireBlockPart {
    uint8_t* packed;  // panels of 32 output features, see blocks.h
    int64_t columns;
    int64_t group;  // a multiple of 32, for our types
    int64_t type;   // QuireBlockType
};

struct QuireBlockWeight {
    const QuireBlockPart* parts;
    int64_t num_parts, depth;
    const int32_t* order;  // [depth]: the weight's input i is x[order[i]]; or null
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
// Bytes of a part's `packed`, or 0 for an unknown type.
QUIRE_EXPORT int64_t quire_block_bytes(const QuireBlockPart* part, int64_t depth);

struct QuireBlockPack {
    const QuireBlockPart* part;
    // [columns], a stride apart, of encoded blocks. One of our types: float scale, uint8 zero, uint8 integers[group]; bytes
    // are stored plus 128.
    const uint8_t* rows;
    int64_t stride, depth;
    int32_t num_threads;
};
QUIRE_EXPORT void quire_block_pack(const QuireBlockPack*);

// to[i] = row ids[i] of the weight, decoded. Returns 0 and does nothing if an id is out of range.
struct QuireBlockRows {
    const QuireBlockWeight* weight;
    const int64_t* ids;
    int64_t num_ids;
    void* to;  // [num_ids, depth]
    int32_t num_threads;
};
QUIRE_EXPORT int32_t quire_block_rows_float32(const QuireBlockRows*);
QUIRE_EXPORT int32_t quire_block_rows_bfloat16(const QuireBlockRows*);

// y = x W^T + b, a function of y, or that times z = x U^T + c.
enum QuireBlockForm { QUIRE_BLOCK_PLAIN, QUIRE_BLOCK_SILU, QUIRE_BLOCK_GELU_TANH };
struct QuireBlockLinear {
    const QuireBlockWeight* weight;
    const void* bias;            // or null
    const QuireBlockWeight* up;  // or null; one part, as then the weight has
    const void* up_bias;
    const void* x;  // [num_rows, depth], rows are x_stride elements apart
    int64_t x_stride, num_rows;
    void* out;  // [num_rows, columns], rows are out_stride elements apart; same type as x and the biases
    int64_t out_stride;
    int32_t form, num_threads;
    const float *addend, *up_addend;  // of adapters, as `out`, or null: added before it is rounded
};
QUIRE_EXPORT void quire_block_linear_float32(const QuireBlockLinear*);
QUIRE_EXPORT void quire_block_linear_bfloat16(const QuireBlockLinear*);
// Several calls at once, with weights of one shape, for experts.cpp. Each has a row or more; their `num_threads` are
// ignored.
void quire_block_linears_float32(const QuireBlockLinear* calls, int64_t num_calls, int64_t num_threads);
void quire_block_linears_bfloat16(const QuireBlockLinear* calls, int64_t num_calls, int64_t num_threads);
}
