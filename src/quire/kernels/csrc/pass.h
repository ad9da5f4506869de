// C interface of a pass: calls functions of the other interfaces, each with one structure, in a row.
//
// The operations between products are small, and calling them from Python takes longer, since each product evicts the
// interpreter from the caches. `kernels/recorder.py` records the calls of a pass.
#pragma once

#include <cstdint>

extern "C" {

struct QuireCall {
    void (*function)(const void* arguments);
    const void* arguments;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
// seconds: [num_calls], increased by each call's time, or null.
QUIRE_EXPORT void quire_run(const QuireCall* calls, int64_t num_calls, double* seconds);
}
