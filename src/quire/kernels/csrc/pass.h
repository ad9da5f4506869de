// The C interface of a pass: functions of the other interfaces that take one structure, called one after the other.
//
// Between two products everything is small, and what calls it from outside takes longer than it does: its own code and
// data have left the caches with every product. `kernels/recorder.py` notes the calls of a pass, to have it go on alone.
#pragma once

#include <cstdint>

extern "C" {

struct QuireCall {
    void (*function)(const void* arguments);
    const void* arguments;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
// seconds: [num_calls], to which each call's time is added; null: it is not measured.
QUIRE_EXPORT void quire_run(const QuireCall* calls, int64_t num_calls, double* seconds);
}
