// Detects the processor's level; compiled for the generic level only. A feature whose registers the operating system
// does not save (XCR0) counts as absent.
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>

// Conversions of float16; older compilers do not know their name.
static bool has_float16() {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

// Dot products of bfloat16 pairs and 8-bit integers; older compilers do not know their names.
static bool has_short_products() {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || eax < 1 || !(ecx >> 11 & 1)) return false;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);
}
#endif

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

// Checks for AMX by cpuid and XCR0, and requests the system's permission for all threads of this process.
static bool may_use_tiles() {
    unsigned eax, ebx, ecx, edx, low, high;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return false;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    const unsigned tile_bf16_int8 = 1u << 24 | 1u << 22 | 1u << 25;
    if ((edx & tile_bf16_int8) != tile_bf16_int8) return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 3u << 17) != 3u << 17) return false;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#else
[[maybe_unused]] static bool may_use_tiles() { return false; }
#endif

extern "C" __attribute__((visibility("default"))) int quire_cpu_runs(const char* level) {
    if (!std::strcmp(level, "generic")) return 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_float16();
    if (!std::strcmp(level, "avx2")) return has_avx2;
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!std::strcmp(level, "avx512")) return has_avx512;
    const bool has_bf16 = has_avx512 && has_short_products();
    if (!std::strcmp(level, "avx512bf16")) return has_bf16;
    if (!std::strcmp(level, "amx")) return has_bf16 && may_use_tiles();
#endif
    return 0;
}
