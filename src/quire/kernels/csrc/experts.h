// C interface of a mixture of experts: from a router's logits to the weighted sum of the chosen experts' outputs.
//
// An expert is given by the calls of its linear layers, without rows and outputs. Rows are grouped by expert, so the
// weights of an expert are read once for all its rows, and those of other experts not at all. A row's experts are added in
// the order of their numbers, so its result does not depend on other rows. `models/experts.py` fills the structures, field
// by field in this order.
#pragma once

#include <cstdint>

extern "C" {

// Scores: softmax or sigmoid of all logits, or softmax of the chosen ones.
enum QuireScores { QUIRE_SOFTMAX, QUIRE_SIGMOID, QUIRE_SOFTMAX_OF_CHOSEN };

// Chooses the experts with the best scores, of equal ones the first. With groups, only experts of the best groups count.
struct QuireRouting {
    const void* logits;    // [num_rows, num_experts], dense, of x's type or float32
    const float* bias;     // [num_experts], added to scores for the choice only, or null
    const float* factors;  // [num_experts], of weights, or null
    int64_t num_experts, num_chosen, num_groups, num_chosen_groups;
    int64_t num_of_group;  // best scores, whose sum is a group's score
    float scale;           // of weights
    int32_t scores;
    int32_t normalizes;  // weights to a sum of 1, before `scale`
    int32_t has_float_logits;
};

// An array of QuireLinear, QuireQuantizedLinear or QuireBlockLinear, by expert.
enum QuireCallKind { QUIRE_PANELS, QUIRE_QUANTIZED, QUIRE_BLOCKS };

// An expert's inner features: of calls with an `up` weight, or of separate gate and up calls.
enum QuireGating { QUIRE_IN_CALL, QUIRE_GELU_TANH, QUIRE_CLAMPED_SWIGLU };

struct QuireExperts {
    QuireRouting routing;
    const void* x;  // [num_rows, hidden], rows are `x_stride` elements apart
    int64_t x_stride, num_rows, hidden, inner;
    const void *gate, *up, *down;  // calls; `up` of separate ones only
    const void *shared, *shared_gate;  // [num_rows, hidden], dense, to be added, and logits of its weight; or null
    void* out;                         // [num_rows, hidden], dense
    float limit, alpha;            // of QUIRE_CLAMPED_SWIGLU: min(g, limit) sigmoid(alpha g) (clamp(u, limit) + 1)
    int32_t gate_kind, down_kind, gating, num_threads;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT void quire_experts_float32(const QuireExperts*);
QUIRE_EXPORT void quire_experts_bfloat16(const QuireExperts*);
}
