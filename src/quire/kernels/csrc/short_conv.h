// C interface of a gated short convolution, as LFM2 has it in place of attention, between its linear projections.
//
// Each channel's output is c (bias + sum of weights * (b x) over the last three tokens). A block's state is float32: the
// last two products b x, [2][channels].
#pragma once

#include <cstdint>

#include "states.h"

extern "C" {

struct QuireShortConv {
    const QuireStatePlan* plan;
    float* states;            // of block 0
    const void *b, *c, *x;    // of row 0
    void* out;                // [num_rows][channels], dense
    const float *conv, *bias;  // [3][channels], the last is the token's own; [channels], or null
    int64_t row_stride;       // elements between rows of b, c and x
    int64_t channels;         // a multiple of 16
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT void quire_short_conv_float32(const QuireShortConv*);
QUIRE_EXPORT void quire_short_conv_bfloat16(const QuireShortConv*);
}
