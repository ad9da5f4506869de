// What the processor that this runs on has, asked of it and of the operating system; compiled for the generic level.
// The compiler's own check asks both: a feature whose registers the system does not save (XCR0) counts as absent.
#include <cstring>

extern "C" __attribute__((visibility("default"))) int quire_cpu_runs(const char* level) {
    if (!std::strcmp(level, "generic")) return 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!std::strcmp(level, "avx2")) return has_avx2;
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!std::strcmp(level, "avx512")) return has_avx512;
    if (!std::strcmp(level, "avx512bf16"))
        return has_avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
#endif
    return 0;
}
