// AMX's tile registers, as far as compilers have to be told about them.
#pragma once

#if defined(__AMX_TILE__)
#include <immintrin.h>

namespace {

// What was stored before is in memory when tiles are loaded. g++ before 12.4 and 13.3 believes that a tile's
// configuration is 8 of its 64 bytes, and does not see that a tile is loaded from memory at all.
inline void finish_stores() { asm volatile("" ::: "memory"); }

inline void load_configuration(const void* configuration) {
    asm volatile("" : : "r"(configuration) : "memory");
    _tile_loadconfig(configuration);
}

}  // namespace
#endif
