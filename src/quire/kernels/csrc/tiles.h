// AMX's tile registers, as far as compilers have to be told about them.
#pragma once

#if defined(__AMX_TILE__)
#include <immintrin.h>

#include <cstdint>

namespace {

// What was stored before is in memory when tiles are loaded. g++ before 12.4 and 13.3 believes that a tile's
// configuration is 8 of its 64 bytes, and does not see that a tile is loaded from memory at all.
inline void finish_stores() { asm volatile("" ::: "memory"); }

// All eight registers as tiles of 16 rows of 64 bytes, for the thread that makes it and as long as it is there. The
// process must have asked the system for them: `quire_cpu_runs` does.
class Tiles {
  public:
    Tiles() {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } const configuration;
        asm volatile("" : : "r"(&configuration) : "memory");
        _tile_loadconfig(&configuration);
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
};

}  // namespace
#endif
