// Joins the bit planes of floats into their words, see loading/planes/floats.py.
#pragma once

#include <cstdint>

extern "C" {

#define QUIRE_EXPORT __attribute__((visibility("default")))

// A word is sign, exponent, the head of the mantissa, and its low bytes. Bits of planes that are null become 0.
struct QuirePlanes {
    const uint8_t* exponents;  // [num_rows][size]
    const uint8_t* top;        // rows of little-endian bit strings of whole bytes: the sign over the head's upper bits
    const uint8_t* rest;       // likewise, the head's other bits
    const uint8_t* low;        // [num_rows][size][low_bytes]
    void* out;                 // [num_rows][size]
    int64_t num_rows, size;
    int32_t top_bits, rest_bits;  // at most 8 together
    int32_t item_bytes, low_bytes;  // 2 and 0 (bfloat16), 2 and 1 (float16), or 4 and 2 (float32)
};
QUIRE_EXPORT void quire_join_planes(const QuirePlanes*);

// Splits bfloat16 (item_bytes 2) or float32 (4) into exponents, sign and head (a byte each), and low bytes.
QUIRE_EXPORT void quire_split_planes(const void* words, uint8_t* exponents, uint8_t* heads, uint8_t* low, int64_t size,
                                     int32_t item_bytes);
}
