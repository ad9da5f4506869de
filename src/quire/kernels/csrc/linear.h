// The C interface of linear layers: plain pointers and numbers, so that no torch version is bound.
//
// A packed weight is cut into panels of `quire_linear_panel` outputs. A panel is [depth / E][panel][E] elements, where
// depth is in_features, rounded up: E inputs of one output lie together, 2 of bfloat16 or 1 of float32, as the
// processor's products want them. So a product streams through a panel from its first byte to its last. A panel takes
// the bytes of the rows that it is made of: a weight of whole panels is packed where it lies.
// `models/weights/panel_weight.py` fills the structures in, field by field in this order.
#pragma once

#include <cstdint>

extern "C" {

// out = x W^T + b, or silu of that, or with U and c: silu(x W^T + b) * (x U^T + c).
struct QuireLinear {
    const void* x;  // [num_rows, in_features], rows are `x_stride` elements apart
    int64_t x_stride, num_rows, in_features, out_features;
    const void *weight, *bias;  // packed; [out_features], or null
    const void *up, *up_bias;   // U and c; null: there are none
    void* out;                  // [num_rows, out_features], rows are `out_stride` elements apart
    int64_t out_stride;
    int32_t silu, num_threads;
};

struct QuirePack {
    const void* weight;  // [out_features, in_features], rows are `stride` elements apart
    int64_t stride, in_features, out_features;
    void* packed;  // the weight itself, where it is dense and of whole panels and depth
};

// to[i] = row ids[i] of what was packed. It returns 1, or 0 and has done nothing where there is no such row.
struct QuireRows {
    const void* packed;
    int64_t in_features, out_features, num_ids;
    const int64_t* ids;
    void* to;  // [num_ids, in_features], dense
    int32_t num_threads;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT int64_t quire_linear_panel();           // outputs in a panel
QUIRE_EXPORT int64_t quire_linear_depth_float32();   // in_features are rounded up to multiples of it
QUIRE_EXPORT int64_t quire_linear_depth_bfloat16();
QUIRE_EXPORT void quire_linear_float32(const QuireLinear*);
QUIRE_EXPORT void quire_linear_bfloat16(const QuireLinear*);
QUIRE_EXPORT void quire_pack_float32(const QuirePack*);
QUIRE_EXPORT void quire_pack_bfloat16(const QuirePack*);
QUIRE_EXPORT int32_t quire_rows_float32(const QuireRows*);
QUIRE_EXPORT int32_t quire_rows_bfloat16(const QuireRows*);
}
