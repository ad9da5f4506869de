// C interface of linear layers: plain pointers and numbers, independent of torch's version.
//
// A packed weight consists of panels of `quire_linear_panel` outputs. A panel is [depth / E][panel][E] elements: depth is
// in_features, rounded up, and E inputs of one output are adjacent (2 for bfloat16, 1 for float32), as in the processor's
// products. So a product reads a panel sequentially. A panel has the size of its rows, so whole panels are packed in
// place. `models/linear/panel_weight.py` fills the structures, field by field in this order.
#pragma once

#include <cstdint>

extern "C" {

// A panel of a compact weight. High bytes of bfloat16 without their signs are mostly few neighbours, so four bits name one
// of them and the sign (panels.h).
struct QuirePanel {
    int64_t start;    // in bytes
    uint8_t high[8];  // by code; 255 for a plain panel
};

struct QuireWeight {
    const void* data;          // packed panels
    const QuirePanel* panels;  // of a compact weight, or null
    uint32_t kept, middle;     // products and rows use (word & kept) | middle of each 32 bits
};

// out = x W^T + b, silu(x W^T + b), or with U and c: silu(x W^T + b) * (x U^T + c). An adapter's output is added to x W^T
// or x U^T before they are rounded.
struct QuireLinear {
    const void* x;  // [num_rows, in_features], rows are `x_stride` elements apart
    int64_t x_stride, num_rows, in_features, out_features;
    const QuireWeight* weight;
    const void* bias;  // [out_features], or null
    const QuireWeight* up;  // U, or null
    const void* up_bias;    // c, or null
    void* out;              // [num_rows, out_features], rows are `out_stride` elements apart
    int64_t out_stride;
    int32_t silu, num_threads;
    const float *addend, *up_addend;  // of adapters, as `out`, or null
};

// For each head: out = x W^T, and behind it the last `num_copied` features of x. `models/latent_attention.py` fills it.
struct QuireHeads {
    const QuireLinear* weights;  // [num_heads], without rows and outputs, of one size
    const void* x;               // [num_rows][num_heads][in_features + num_copied], dense
    void* out;                   // [num_rows][num_heads][out_features + num_copied], dense
    int64_t num_rows, num_heads, num_copied;
    int32_t num_threads;
};

struct QuirePack {
    const void* weight;  // [out_features, in_features], rows are `stride` elements apart
    int64_t stride, in_features, out_features;
    void* packed;  // may be the weight itself, if it is dense and has whole panels and depth
};

// Makes compact panels of bfloat16. The first call fills `panels`, one more than there are, with starts; the second one
// with memory for the last start fills `packed`.
struct QuireCompact {
    const void* weight;  // [out_features, in_features], rows are `stride` elements apart
    int64_t stride, in_features, out_features;
    QuirePanel* panels;
    void* packed;  // or null
    int32_t num_threads;
};

// Adds bits to the rows from `first_row` on: word |= words. Only this call may write these rows; others may write others,
// or multiply by a view of the weight that keeps none of the bits. Returns 1, or 0 if a compact weight got other bits than
// of mantissas.
struct QuireBits {
    const QuireWeight* weight;
    int64_t in_features, out_features, first_row, num_rows;
    const void* words;  // [num_rows, in_features], dense
    int32_t num_threads;
};

// to[i] = row ids[i] of the unpacked weight. Returns 1, or 0 without any effect if an id is out of range.
struct QuireRows {
    const QuireWeight* weight;
    int64_t in_features, out_features, num_ids;
    const int64_t* ids;
    void* to;  // [num_ids, in_features], dense
    int32_t num_threads;
};

// A low-rank adapter: y += (x down^T) up^T in float32, rounded once, or y = (x down^T) up^T, zeros for rank 0.
// `models/adapter.py` fills it.
struct QuireLowRank {
    const void* x;  // [num_rows, in_features], rows are `x_stride` elements apart
    int64_t x_stride, num_rows, in_features, rank, out_features;
    const QuireWeight *down, *up;  // float32: [rank, in_features], [out_features, rank]
    void* y;                       // [num_rows, out_features], dense; float32 if it is written
    int32_t num_threads;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT int64_t quire_linear_panel();           // outputs in a panel
QUIRE_EXPORT int64_t quire_linear_depth_float32();   // in_features are rounded up to multiples of it
QUIRE_EXPORT int64_t quire_linear_depth_bfloat16();
QUIRE_EXPORT void quire_linear_float32(const QuireLinear*);
QUIRE_EXPORT void quire_linear_bfloat16(const QuireLinear*);
// Several calls at once, for experts.cpp. Each has a row or more; their `num_threads` are ignored.
void quire_linears_float32(const QuireLinear* calls, int64_t num_calls, int64_t num_threads);
void quire_linears_bfloat16(const QuireLinear* calls, int64_t num_calls, int64_t num_threads);
QUIRE_EXPORT void quire_heads_float32(const QuireHeads*);
QUIRE_EXPORT void quire_heads_bfloat16(const QuireHeads*);
QUIRE_EXPORT void quire_pack_float32(const QuirePack*);
QUIRE_EXPORT void quire_pack_bfloat16(const QuirePack*);
QUIRE_EXPORT void quire_compact(const QuireCompact*);
QUIRE_EXPORT int32_t quire_add_bits_float32(const QuireBits*);
QUIRE_EXPORT int32_t quire_add_bits_bfloat16(const QuireBits*);
QUIRE_EXPORT int32_t quire_rows_float32(const QuireRows*);
QUIRE_EXPORT int32_t quire_rows_bfloat16(const QuireRows*);
QUIRE_EXPORT void quire_low_rank_float32(const QuireLowRank*);
QUIRE_EXPORT void quire_low_rank_bfloat16(const QuireLowRank*);
QUIRE_EXPORT void quire_write_low_rank_float32(const QuireLowRank*);
QUIRE_EXPORT void quire_write_low_rank_bfloat16(const QuireLowRank*);
}
