// C interface of sums and gathering among the ranks of one machine, through shared memory.
//
// The memory starts with a line of 64 bytes per rank: the number of parts that the rank has written. Two buffers of
// `part_bytes` per rank follow, used alternately: a rank one part ahead overwrites nothing that another still reads. All
// ranks call the same functions with the same sizes in the same order.
//
// A call waits for a limited time. If a rank is missing, it returns 0 and must be repeated unchanged.
#pragma once

#include <cstdint>

extern "C" {

#define QUIRE_EXPORT __attribute__((visibility("default")))

struct QuireCollective {
    char* memory;       // zeroed at the start
    int64_t part_bytes;  // size of a buffer, a multiple of 64
    int32_t rank, size;
    uint64_t num_parts;  // written by this rank; 0 at the start, as the next two
    int64_t done;        // elements or bytes done by the current call
    int32_t is_put;      // whether its current part is in our buffer
    int32_t wait_us;     // longest wait for other ranks
};

// Sums all ranks' x in place, in float and in rank order, so every rank gets the same bits.
QUIRE_EXPORT int32_t quire_all_reduce_float32(QuireCollective* call, void* x, int64_t num_elements);
QUIRE_EXPORT int32_t quire_all_reduce_bfloat16(QuireCollective* call, void* x, int64_t num_elements);

// Concatenates all ranks' rows: x is [num_rows][row_bytes], out [num_rows][size * row_bytes].
QUIRE_EXPORT int32_t quire_all_gather(QuireCollective* call, const void* x, void* out, int64_t num_rows,
                                      int64_t row_bytes);
}
