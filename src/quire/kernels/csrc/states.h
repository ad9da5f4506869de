// Where a step reads and writes recurrent states. `attention/states.py` fills it, and says what a run is.
#pragma once

#include <cstdint>

extern "C" {

struct QuireStatePlan {
    int64_t num_runs;
    const int64_t* runs;   // [num_runs][4]: first row, row after the last, block of the state before or -1, and after
    int64_t block_stride;  // bytes between the states of two blocks
    int64_t num_threads;
};
}
