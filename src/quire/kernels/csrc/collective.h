// The C interface of what ranks on one machine add up and gather: through memory that all of them have mapped.
//
// The memory begins with a line of 64 bytes a rank, in which stands how many parts it has put there. Then come two
// buffers of `part_bytes` a rank, which it fills in turns: a rank that is a part ahead overwrites nothing that another
// still reads. All ranks call the same functions with the same sizes in the same order.
//
// A call waits some time for the others. Where one has not come by then, it returns 0, and is called again, unchanged.
#pragma once

#include <cstdint>

extern "C" {

#define QUIRE_EXPORT __attribute__((visibility("default")))

struct QuireCollective {
    char* memory;       // all zeros at first
    int64_t part_bytes;  // of a buffer, a multiple of 64
    int32_t rank, size;
    uint64_t num_parts;  // that this rank has put; 0 at first, as the next two
    int64_t done;        // of the call that goes on: elements or bytes
    int32_t is_put;      // and whether its present part is in our buffer
    int32_t wait_us;     // for the others, at most
};

// The sum of all ranks' x in x's place, added up in float in the order of the ranks: the same bits on each.
QUIRE_EXPORT int32_t quire_all_reduce_float32(QuireCollective* call, void* x, int64_t num_elements);
QUIRE_EXPORT int32_t quire_all_reduce_bfloat16(QuireCollective* call, void* x, int64_t num_elements);

// All ranks' rows side by side: x is [num_rows][row_bytes], out [num_rows][size * row_bytes].
QUIRE_EXPORT int32_t quire_all_gather(QuireCollective* call, const void* x, void* out, int64_t num_rows,
                                      int64_t row_bytes);
}
