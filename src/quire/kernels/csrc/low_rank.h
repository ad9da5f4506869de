// C interface of low-rank adapters beside linear layers. `models/adapter.py` fills the structure in this order.
#pragma once

#include <cstdint>

extern "C" {

// y += (x down^T) up^T in float32, rounded once.
struct QuireLowRank {
    const void* x;  // [num_rows, in_features], rows are `x_stride` elements apart
    int64_t x_stride, num_rows, in_features, rank, out_features;
    const void *down, *up;  // packed by quire_pack_float32: [rank, in_features], [out_features, rank]
    void* y;                // [num_rows, out_features], rows are `y_stride` elements apart
    int64_t y_stride;
    int32_t num_threads;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT void quire_low_rank_float32(const QuireLowRank*);
QUIRE_EXPORT void quire_low_rank_bfloat16(const QuireLowRank*);
}
